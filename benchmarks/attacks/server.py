"""A server that sends anything to `serve-load`: floods, bombs, drips, figures that are none, text of terminals."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tally import LONGEST_S, MOST_MB, Tally

from benchmarker.api.errors import UserError
from benchmarker.records import load as loads

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from support.raw_server import ANSWER, END, HEAD, TOKEN, answering

LONGEST_MESSAGE = 2200
"""Most characters on standard error: an error, and progress."""
FIGURES = ("-5", str(2**63), str(10**400), "1" * 5000, "NaN", "1e400", "5.0", '"5"', "true", "[]", "-0")
TEXTS = (b"\xff", b"\\ud800", b"\\u001b[2J", b"\x1b[2J\x9b\x07", b"\\u0000", b"x" * 2**17)
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
Parts = Callable[[], Iterable[bytes]]


def endless(head: bytes, part: bytes) -> Parts:
    return lambda: itertools.chain([head], itertools.repeat(part))


def dripping(head: bytes, part: bytes) -> Parts:
    def parts() -> Iterator[bytes]:
        yield head
        while True:
            time.sleep(0.1)
            yield part

    return parts


def whole(*parts: bytes) -> Parts:
    return lambda: parts


def _bomb(head: bytes, encoding: bytes) -> Parts:
    return endless(head + b"Content-Encoding: %s\r\n\r\n" % encoding, gzip.compress(b" " * 2**20))


ANY: dict[str, Parts] = {
    "nothing": whole(),
    "no HTTP": whole(b"\x1b[2J\xff" * 1000 + b"\r\n\r\n"),
    "endless status line": endless(b"HTTP/1.1 200 ", b"x" * 2**16),
    "endless header": endless(HEAD + b"X: ", b"x" * 2**16),
    "endless headers": endless(HEAD, b"X: 1\r\n" * 2**12),
    "dripping headers": dripping(HEAD, b"X: 1\r\n"),
    "endless interim answers": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2**10),
    "cookies": endless(HEAD, b"Set-Cookie: a%d=b\r\n" * 2**10),
    "two lengths": whole(HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n" + TOKEN + END),
    "negative length": whole(HEAD + b"Content-Length: -5\r\n\r\n" + TOKEN + END),
    "huge length": whole(HEAD + b"Content-Length: %d\r\n\r\n" % 10**30 + TOKEN + END),
    "wrong chunks": whole(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + TOKEN),
    "huge chunk": endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffff\r\n", b"x" * 2**16),
    "tiny chunks": endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 2**12),
    "endless error": endless(b"HTTP/1.1 500 no\r\n\r\n", b"\x1b[2J\xff\n" * 2**14),
    "redirection": whole(b"HTTP/1.1 307 no\r\nLocation: /v1/models\r\nContent-Length: 0\r\n\r\n"),
    "redirection elsewhere": whole(b"HTTP/1.1 302 no\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n"),
    "odd type": whole(b"HTTP/1.1 200 OK\r\nContent-Type: \xff\x1b[2J; charset*0*=\r\n\r\n"),
}
"""What the server answers, whatever was asked."""
MODELS: dict[str, Parts] = {
    "endless": endless(JSON + b"\r\n", b" " * 2**20),
    "bomb": _bomb(JSON, b"gzip"),
    "wrong bomb": _bomb(JSON, b"br"),
    "nested": whole(JSON + b"\r\n", b"[" * 2**17),
    "many": whole(JSON + b"\r\n", json.dumps({"data": [{"id": "\x1b[2J" * 20}] * 1000}).encode()),
    "no list": whole(JSON + b"\r\n", b'{"data": null}'),
    "dripping": dripping(JSON + b"\r\n", b" "),
    **{f"text {text[:9]!r}": whole(JSON + b'\r\n{"data": [{"id": "' + text + b'"}]}') for text in TEXTS},
}
"""What it answers to the question for its models."""
STREAMS: dict[str, Parts] = {
    "endless line": endless(HEAD + b"\r\n", b"x" * 2**16),
    "endless event": endless(HEAD + b"\r\ndata: ", b"[" * 2**16),
    "endless comments": endless(HEAD + b"\r\n", b": ping\n" * 2**12),
    "endless empty events": endless(HEAD + b"\r\n", b"data: {}\n\n" * 2**12),
    "endless tokens": endless(HEAD + b"\r\n", TOKEN * 2**10),
    "dripping": dripping(HEAD + b"\r\n", b"x"),
    "dripping comments": dripping(HEAD + b"\r\n", b": ping\n"),
    "bomb": _bomb(HEAD, b"gzip"),
    "nested": whole(HEAD + b"\r\ndata: ", b"[" * 2**17, b"\n"),
    "nested error": whole(HEAD + b'\r\ndata: {"error": ', b"[]," * 2**16, b"\n"),
    "ends": whole(HEAD + b"\r\n" + TOKEN),
    "no text": whole(HEAD + b"\r\n" + END),
    **{
        f"{name} {figure[:9]}": whole(
            HEAD + b'\r\ndata: {"usage": {"%s": %s}}\n\n' % (name.encode(), figure.encode()), TOKEN, END
        )
        for name in ("prompt_tokens", "completion_tokens")
        for figure in FIGURES
    },
    **{
        f"text {text[:9]!r}": whole(HEAD + b'\r\ndata: {"choices": [{"text": "' + text + b'"}]}\n\n', END)
        for text in TEXTS
    },
    **{f"error {text[:9]!r}": whole(HEAD + b'\r\ndata: {"error": "' + text + b'"}\n\n', END) for text in TEXTS},
}
"""What it answers to a request for text."""
ATTACKS: list[tuple[str, str, Parts]] = [
    *(("models", name, parts) for name, parts in (ANY | MODELS).items()),
    *(("first", name, parts) for name, parts in (ANY | STREAMS).items()),
    *(("later", name, parts) for name, parts in (ANY | STREAMS).items()),
]
"""What is attacked: the question for models, the request that is not measured, or those that are."""


def attacks(count: int, rng: random.Random) -> Tally:
    """Let a hostile server answer `serve-load` in so many of the ways."""
    tally = Tally()
    for where, name, parts in rng.sample(ATTACKS, min(count, len(ATTACKS))):
        with tempfile.TemporaryDirectory() as folder:
            _attack(where, parts, Path(folder), f"{where}: {name}", tally)
    return tally


def _attack(where: str, parts: Parts, folder: Path, label: str, tally: Tally) -> None:
    tally.attacks += 1
    asked = itertools.count()

    def answer(first: bytes) -> Iterable[bytes]:
        if first.startswith(b"GET") or (where == "later" and not next(asked)):
            return parts() if where == "models" else [ANSWER]
        return parts()

    model = [] if where == "models" else ["--model=toy"]
    with answering(answer) as url, (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        words = [
            "serve-load",
            f"--endpoint={url}",
            *model,
            "--rate=20",
            "--seconds=0.5s",
            "--timeout=2s",
            "--new-tokens=3",
        ]
        with subprocess.Popen([sys.executable, "-m", "benchmarker", *words], cwd=folder, stdout=out, stderr=err) as run:
            peak_MB = _watched(run, label, tally)
    said = (folder / "err").read_text(errors="replace")
    if peak_MB > MOST_MB:
        tally.bad("memory", f"{label}: {peak_MB:.0f} MB")
    if "Traceback" in said:
        tally.bad("traceback", f"{label}: {said.strip().splitlines()[-1][:300]}")
    elif run.returncode not in (0, 1, 2, -9):
        tally.bad("status", f"{label}: {run.returncode}")
    letters = {*said, *(folder / "out").read_text(errors="replace")}
    if odd := {letter for letter in letters if not (letter.isprintable() or letter == "\n")}:
        tally.bad("escape", f"{label}: {odd}")
    if len(said) > LONGEST_MESSAGE:
        tally.bad("flood", f"{label}: {len(said)} characters on standard error")
    for path in folder.glob("results/*/load.json"):
        try:
            loads.read(path)
        except UserError as error:
            tally.bad("unreadable", f"{label}: {error}")


def _watched(run: subprocess.Popen[bytes], label: str, tally: Tally) -> float:
    """Wait until a process ends, at most LONGEST_S and five times MOST_MB; return its peak resident memory in MB."""
    peak_MB, end = 0.0, time.monotonic() + LONGEST_S
    while run.poll() is None:
        with contextlib.suppress(OSError):
            if known := re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{run.pid}/status").read_text()):
                peak_MB = int(known[1]) * 1024 / 1e6
        if time.monotonic() > end:
            tally.bad("hang", label)
        if time.monotonic() > end or peak_MB > 5 * MOST_MB:
            run.kill()
        time.sleep(0.02)
    return peak_MB
