"""A git repository of which one commit makes a function do more work, or none does."""

import subprocess
from pathlib import Path

COUNT = 1000
"""The work of a step before the slower commit."""
KINDS = {
    "loop": """def step(x):
    total = 0
    for number in range(10 * COUNT):
        total += number * number
    return total
""",
    "arrays": """def step(x):
    total = x.copy()
    for _ in range(COUNT // 10):
        np.add(total, x, out=total)
    return total
""",
}
"""A step in the interpreter's loop, and one in NumPy: 100 sums of arrays of 32 KiB."""
WORK = '''"""Change {change}."""

import numpy as np

COUNT = {count}


def inputs():
    return np.linspace(0.0, 1.0, 4096)


{function}'''


def make(folder: Path, commits: int, kind: str, slower: int | None, share: float) -> list[str]:
    """Make a repository of a good commit and so many others; returns their hashes, the good one first.

    From the commit of number `slower` on, a step does `share` more work.
    """
    stream = []
    for change in range(commits + 1):
        count = COUNT if slower is None or change < slower else round(COUNT * (1 + share))
        content = WORK.format(change=change, count=count, function=KINDS[kind])
        message = f"Change {change}"
        stream += [
            "commit refs/heads/main",
            f"committer x <x@example.org> {1700000000 + change} +0000",
            f"data {len(message)}",
            message,
            "M 644 inline work.py",
            f"data {len(content)}",
            content,
        ]
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "fast-import", "--quiet", given="\n".join(stream))
    git(folder, "reset", "--quiet", "--hard")
    return git(folder, "rev-list", "--reverse", "main").split()


def git(folder: Path, *words: str, given: str = "") -> str:
    """Execute git in a folder; returns what it printed."""
    done = subprocess.run(["git", "-C", str(folder), *words], input=given, capture_output=True, text=True, check=True)
    return done.stdout
