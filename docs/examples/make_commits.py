"""Make the git repository of docs/examples/commit.md: 12 commits of one file, softmax.py.

Authors and dates are fixed, so that the commits have the same hashes wherever they are made:

    python docs/examples/make_commits.py FOLDER
"""

import os
import subprocess
import sys
from pathlib import Path

FIRST = """import numpy as np


def inputs(rows=256, columns=1024):
    return np.random.default_rng(0).standard_normal((rows, columns))


def softmax(x):
    exps = np.exp(x - x.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)
"""
CHANGES = (
    ("Say what the file is", "import numpy", '"""Softmax of the rows of a matrix."""\n\nimport numpy'),
    (
        "Say what softmax returns",
        "softmax(x):\n",
        'softmax(x):\n    """Return exp(x), divided by its sum in each row."""\n',
    ),
    (
        "State the bytes of a step",
        "def softmax",
        "def bytes(rows, columns, itemsize):\n    return 2 * rows * columns * itemsize\n\n\ndef softmax",
    ),
    ("Take the last axis of any array", "axis=1", "axis=-1"),
    (
        "Name the largest number of a row",
        "    exps = np.exp(x - x.max(axis=-1, keepdims=True))",
        "    largest = x.max(axis=-1, keepdims=True)\n    exps = np.exp(x - largest)",
    ),
    (
        "Sum in double precision",
        "    return exps / exps.sum(axis=-1, keepdims=True)",
        "    total = exps.sum(axis=-1, keepdims=True, dtype=np.float64)\n    return exps / total.astype(exps.dtype)",
    ),
    ("Say why the largest is subtracted", "    largest =", "    # exp of a large number is infinite.\n    largest ="),
    (
        "Draw other inputs from other seeds",
        "columns=1024):\n    return np.random.default_rng(0)",
        "columns=1024, seed=0):\n    return np.random.default_rng(seed)",
    ),
    (
        "Add a reference",
        "def softmax",
        "def reference(x):\n    exps = np.exp(x)\n    return exps / exps.sum(axis=-1, keepdims=True)\n\n\ndef softmax",
    ),
    ("Rename exps", "exps", "powers"),
    ("State the shapes", "in each row.", "in each row: [rows, columns]."),
)
"""Message, text to replace and its replacement, of each commit after the first."""
WHO = {"NAME": "A. Developer", "EMAIL": "developer@example.org"}


def main(folder: Path) -> None:
    """Make the repository in a new folder."""
    folder.mkdir(parents=True)
    content = FIRST
    _git(folder, "init", "--quiet", "--initial-branch=main")
    for day, (message, old, new) in enumerate((("Add softmax", "", ""), *CHANGES), 2):
        content = content.replace(old, new) if old else content
        (folder / "softmax.py").write_text(content)
        _git(folder, "add", "softmax.py")
        _git(folder, "commit", "--quiet", f"--message={message}", date=f"2026-03-{day:02}T12:00:00+0000")


def _git(folder: Path, *words: str, date: str = "") -> None:
    """Execute git without the settings of this user, as one author at one time."""
    fixed = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in WHO.items()}
    fixed |= {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    fixed |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "-C", str(folder), *words], env={**os.environ, **fixed}, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
