"""`python -m benchmarker`."""

from benchmarker.cli import main

if __name__ == "__main__":
    main()
