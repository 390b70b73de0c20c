"""`python -m benchmarker`."""

import signal
import sys

if __name__ == "__main__":
    try:
        from benchmarker.cli import main

        main()
    except KeyboardInterrupt:  # while modules are imported; `main` handles it afterwards
        sys.exit(128 + signal.SIGINT)
