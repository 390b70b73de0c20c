"""What a page shows of a command, against what it prints."""


def holds(text, printed):
    """Whether the parts of a text between lines `[...]` stand in what was printed, in this order."""
    for part in filter(None, text.split("[...]\n")):
        if part not in printed:
            return False
        printed = printed.partition(part)[2]
    return True
