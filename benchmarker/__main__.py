"""The command `benchmarker`, and `python -m benchmarker`."""

import sys


def main() -> None:
    """Run the command line; an interrupt while its modules are imported ends it as any later one does."""
    try:
        from benchmarker.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.stderr.write("benchmarker: interrupted\n")
        sys.exit(130)
    finally:
        exec("")  # noqa: S102 - after an interrupted one, as of `dataclass`, Python would end by SIGINT all the same


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder, in which a `numpy.py` would be imported instead of the library
    main()
