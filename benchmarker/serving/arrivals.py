"""When requests arrive, and how long they are: drawn from a seed, or read from a trace file.

All is planned before the first request is sent, so nothing that a server does can change it.
"""

import csv
import math
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

import numpy as np

from benchmarker.api.errors import UserError
from benchmarker.files import regular
from benchmarker.records.load import MOST_TOKENS, Lengths

COLUMNS = ("arrival_s", "prompt_len", "new_tokens")
MOST_REQUESTS = 1_000_000


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is planned to be sent `arrival_s` after the start; lengths are in tokens."""

    arrival_s: float
    prompt_len: int
    new_tokens: int


def draw(
    rate_per_s: float, seconds: float, prompt_len: Lengths, new_tokens: Lengths, seed: int, burst_size: int = 1
) -> list[Request]:
    """Return the requests that arrive within `seconds`: bursts of `burst_size` at the times of a Poisson process.

    With one seed, another rate compresses the same sequence of arrivals in time. Raises `UserError` if there are none,
    or more than MOST_REQUESTS.
    """
    bursts_per_s = rate_per_s / burst_size
    expected = bursts_per_s * seconds
    if expected * burst_size > MOST_REQUESTS:
        raise UserError(
            f"{expected * burst_size:.0f} requests: at most {MOST_REQUESTS:,} are possible; lower --seconds"
        )
    gaps = np.random.default_rng([seed, 0])
    times = np.zeros(0)
    while not len(times) or times[-1] < seconds:
        more = gaps.exponential(1 / bursts_per_s, math.ceil(expected) + 16)
        times = np.append(times, np.cumsum(more) + (times[-1] if len(times) else 0.0))
    times = np.repeat(times[times < seconds], burst_size)
    if not len(times):
        raise UserError(f"no request arrives within {seconds:g} s at {rate_per_s:g} requests/s; raise --seconds")
    generator = np.random.default_rng([seed, 1])
    drawn = [
        (
            int(generator.integers(prompt_len.low, prompt_len.high + 1)),
            int(generator.integers(new_tokens.low, new_tokens.high + 1)),
        )
        for _ in times
    ]
    return [Request(float(time), *lengths) for time, lengths in zip(times, drawn, strict=True)]


def read_trace(path: Path) -> list[Request]:
    """Read the requests of a CSV file with the columns COLUMNS, in order of arrival.

    Raises `UserError` that names the file and the line.
    """
    try:
        with TextIOWrapper(regular.opened(path), encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            if missing := [name for name in COLUMNS if name not in (rows.fieldnames or [])]:
                raise UserError(f"{path}: no column {', '.join(missing)}; the first line names {','.join(COLUMNS)}")
            requests = [_request(row, f"{path}, line {rows.line_num}") for row in rows]
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: not CSV in UTF-8: {error}") from error
    if not requests:
        raise UserError(f"{path}: no request; a line has arrival in s, prompt length and new tokens: 0.25,512,128")
    return sorted(requests, key=lambda request: request.arrival_s)


def _request(row: dict[str, str | None], where: str) -> Request:
    try:
        arrival_s, prompt_len, new_tokens = (row[name] or "" for name in COLUMNS)
        request = Request(float(arrival_s), int(prompt_len), int(new_tokens))
    except ValueError as error:
        raise UserError(
            f"{where}: {error}; a line has arrival in s, prompt length and new tokens: 0.25,512,128"
        ) from None
    if not (
        0 <= request.arrival_s < math.inf
        and all(0 < n <= MOST_TOKENS for n in (request.prompt_len, request.new_tokens))
    ):
        raise UserError(f"{where}: an arrival is at 0 s or later, and lengths are 1 to {MOST_TOKENS:,} tokens")
    return request
