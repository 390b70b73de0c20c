"""Search repositories with `bisect`, beside a neighbour that comes and goes or without one, and count its answers.

Each repetition makes a repository of which one of 30 commits does 5% more work, at a place that is drawn, or none
does, and executes `python -m benchmarker bisect` in it. Its answer is a line that is appended to a file; what the file
has is not repeated.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import click
from repository import KINDS, make

MEASURING = ("--framework=numpy", "--cache=hot", "--blocks=100", "--seconds=0.2", "--power=none")
Key = tuple[bool, bool, int]
"""A repetition: whether a commit is slower, whether there is a neighbour, and its number among those."""


@contextmanager
def neighbour(busy_ms: float, rest_ms: float, seed: int) -> Iterator[None]:
    """Have a neighbour meanwhile."""
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("neighbour.py")), *map(str, (busy_ms, rest_ms))]
    process = subprocess.Popen([*command, str(seed)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def searched(key: Key, commits: int, share: float, seed: int) -> dict[str, Any]:
    """Make a repository, search it, and return the answer, how long it took in s, and how many trials."""
    is_slower, _, number = key
    draw = random.Random(f"{seed} {key}")
    slower = draw.randint(1, commits) if is_slower else None
    kind = list(KINDS)[number % len(KINDS)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shas = make(folder, commits, kind, slower, share)
        search = ["bisect", f"--good={shas[0]}", "--quiet", "--json", "--", "run", "work.py:step", *MEASURING]
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarker", *search], cwd=folder, capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - begun
    if done.returncode not in (0, 1) or not done.stdout:
        raise click.ClickException(done.stderr)
    found = json.loads(done.stdout)
    comparisons = [step["comparison"] for step in found["steps"]]
    return {
        "kind": kind,
        "slower": slower,
        "answer": answer(found, shas[slower] if slower else None),
        "named": shas.index(found["commit"]["sha"]) if found["commit"] else None,
        "suspects": [shas.index(each["sha"]) for each in found["suspects"]],
        "reason": found["reason"],
        "seconds": seconds,
        "rounds": [each["trials"][0] for each in comparisons],
        "trials": sum(sum(each["trials"]) for each in comparisons),
        "deviation": comparisons[0]["process_deviation"],
    }


def answer(found: dict[str, Any], sha: str | None) -> str:
    """Return whether an answer is right; a list of suspects is wrong if the slower commit is not among them."""
    suspects = [each["sha"] for each in found["suspects"]]
    if found["outcome"] == "cannot tell":
        return "cannot tell" if sha is None or sha in suspects else "wrong"
    if found["outcome"] == "no difference":
        return "no difference"
    return "right commit" if suspects == [sha] else "wrong"


def read(file: Path, settings: dict[str, Any]) -> dict[Key, dict[str, Any]]:
    """Return the repetitions that the file has; a last line that was cut off is repeated."""
    known: dict[Key, dict[str, Any]] = {}
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if one["settings"] != settings:
            raise click.UsageError(f"{file} has repetitions with other settings, {one['settings']}; name another file")
        known[(one["is_slower"], one["neighbour"], one["number"])] = one
    return known


def told(known: dict[Key, dict[str, Any]], share: float) -> None:
    """Print how often each answer was given, and what it took."""
    for is_slower in (True, False):
        for beside in (True, False):
            several = [one for key, one in known.items() if key[:2] == (is_slower, beside)]
            if not several:
                continue
            counts = Counter(one["answer"] for one in several)
            answers = ("right commit", "no difference", "cannot tell", "wrong") if is_slower else ("no difference",)
            others = () if is_slower else ("cannot tell", "wrong")
            print(
                f"{f'{share:.0%} more work in one commit' if is_slower else 'the same work'}, "
                f"{'beside a neighbour' if beside else 'no neighbour'}: "
                + ", ".join(f"{each} {counts[each]} of {len(several)}" for each in (*answers, *others))
            )
            print(
                f"  {spread([one['seconds'] for one in several])} s a search, "
                f"{spread([one['trials'] for one in several])} trials; trials of a commit differ by "
                f"{median(one['deviation'] for one in several):.1%} (standard deviation, median)"
            )


def spread(values: list[float]) -> str:
    """Return the median and the range."""
    return f"{median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


@click.command()
@click.option("--file", type=click.Path(path_type=Path), required=True, help="Answers, one a line; continued if there.")
@click.option(
    "--repetitions", default=20, show_default=True, help="Searches with a slower commit, and as many without."
)
@click.option(
    "--neighbour/--no-neighbour", "beside", default=True, show_default=True, help="Search beside a neighbour."
)
@click.option("--at-most-minutes", type=float, help="Begin no search after this time.")
@click.option("--commits", default=30, show_default=True, help="Commits after the good one.")
@click.option("--share", default=0.05, show_default=True, help="How much more work the slower commit does.")
@click.option("--busy-ms", default=20.0, show_default=True, help="Mean time for which the neighbour is busy.")
@click.option("--rest-ms", default=80.0, show_default=True, help="Mean time for which it rests.")
@click.option("--seed", default=37, show_default=True, help="Seed of the places of the slower commits.")
def main(
    file: Path,
    repetitions: int,
    beside: bool,
    at_most_minutes: float | None,
    commits: int,
    share: float,
    busy_ms: float,
    rest_ms: float,
    seed: int,
) -> None:
    """Search repositories with and without a slower commit, in turns, and count the answers.

    20 of each take about an hour on one core. Without --at-most-minutes, all are searched; Ctrl-C loses the last one.
    """
    settings = {
        "commits": commits,
        "share": share,
        "busy_ms": busy_ms,
        "rest_ms": rest_ms,
        "seed": seed,
        "measuring": list(MEASURING),
    }
    known = read(file, settings)
    todo = [
        key
        for number in range(repetitions)
        for key in ((True, beside, number), (False, beside, number))
        if key not in known
    ]
    begun, took = time.monotonic(), {is_slower: [0.0] for is_slower in (True, False)}
    for (is_slower, _, _), one in known.items():
        took[is_slower].append(one["seconds"])
    with file.open("a") as out:
        if file.stat().st_size and not file.read_bytes().endswith(b"\n"):
            out.write("\n")
        for done, key in enumerate(todo, 1):
            if at_most_minutes is not None and time.monotonic() - begun > 60 * at_most_minutes:
                break
            number = key[2]
            if beside:
                with neighbour(busy_ms, rest_ms, number):
                    one = searched(key, commits, share, seed)
            else:
                one = searched(key, commits, share, seed)
            known[key] = {"is_slower": key[0], "neighbour": beside, "number": number, **one, "settings": settings}
            out.write(json.dumps(known[key]) + "\n")
            out.flush()
            took[key[0]].append(one["seconds"])
            left = sum(sum(took[each]) / max(1, len(took[each]) - 1) for each, _, _ in todo[done:])
            print(
                f"{done} of {len(todo)}: {one['answer']}, {one['seconds']:.0f} s, {one['trials']} trials; "
                f"about {left / 60:.0f} min left",
                file=sys.stderr,
                flush=True,
            )
    told(known, share)


if __name__ == "__main__":
    main()
