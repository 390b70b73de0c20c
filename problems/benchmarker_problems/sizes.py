"""Sizes in bytes that are options."""

from benchmarker import UserError


def size_text(size: int) -> str:
    """Return a number of bytes in the largest binary unit that divides it: `16 MiB`."""
    for bits, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size % 2**bits == 0:
            return f"{size >> bits} {unit}"
    return f"{size} B"


def refuse_remainder(size: int, unit: int, why: str = "") -> None:
    """Raise `UserError` if `--bytes` is not a multiple of a unit; `why` says what the unit is."""
    if size % unit:
        raise UserError(
            f"--bytes={size} is not a multiple of {unit}{why}; for example --bytes={max(1, size // unit) * unit}"
        )
