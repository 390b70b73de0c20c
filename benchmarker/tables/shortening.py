"""Texts that are too long: shortened in the middle, or those of kernels where they agree, not where they differ."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from benchmarker.formatting import shortened

WIDEST = 56
"""Longer names are shortened in tables without --wide; JSON and CSV contain them in full."""
_EMPTY = re.compile(r"^void |\bat::native::|\(anonymous namespace\)::")
"""Parts of C++ names that tell nothing: what a kernel returns, and the name spaces of PyTorch's kernels."""
_WORD = re.compile(r"[^\W_]+")
_TILE = re.compile(r"\d+x\d+")
"""A tile size, such as `128x64`, which is kept."""
_LONGEST = 2048
"""Characters of a name that are looked at."""
_SIMILAR = 12
"""Names that begin with the same characters, as many as these, are kept apart by their differing words."""
_HEAD = 0.4
"""Share of the width that is kept for the begin of a name."""


def factored(names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the words that all names share, and each name without them; nothing is shared if a name has no others."""
    words = [name.split() for name in names]
    shared = [word for word in words[0] if all(word in others for others in words[1:])] if len(names) > 1 else []
    rests = [" ".join(word for word in own if word not in shared) for own in words]
    return (" ".join(shared), rests) if all(rests) else ("", list(names))


def apart(names: Sequence[str], width: int) -> list[str]:
    """Return names of at most `width` characters; different names stay different, if that is possible.

    A name that fits is unchanged. Of longer ones, what C++ repeats is left out: the type `void`, PyTorch's name spaces,
    and the arguments after a template. If similar names are still too long, words that all of them share give way to
    those that differ, and to tile sizes. `…` stands for what was left out.
    """
    long = {name: _plain(name) for name in dict.fromkeys(names) if len(name) > width}
    similar = defaultdict(list)
    for name, plain in long.items():
        similar[plain[:_SIMILAR]].append(name)
    made: dict[str, str] = {}
    for group in similar.values():
        shares = Counter(word for name in group for word in set(_WORD.findall(long[name])))
        rare = {word: share for word, share in shares.items() if share < len(group) or _TILE.search(word)}
        for name in group:
            is_cut = len(long[name]) > width and (rare or "<" in long[name])
            made[name] = _telling(long[name], rare, width) if is_cut else shortened(long[name], width)
    for same in _owners(made).values():
        if len(same) > 1:
            made |= _from_difference(same, width)
    return [made.get(name, name) for name in names]


def _owners(made: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names that each text stands for."""
    owners = defaultdict(list)
    for name, text in made.items():
        owners[text].append(name)
    return owners


def _plain(name: str) -> str:
    """Return a name without what tells nothing; the function of a C++ template without its arguments."""
    text = _EMPTY.sub("", name[:_LONGEST])
    open_ = 0
    for at in range(len(text) - 1, 0, -1) if text.endswith(")") else ():
        open_ += (text[at] == ")") - (text[at] == "(")
        if not open_:
            return text[:at] if text[at - 1] == ">" else text
    return text


def _telling(text: str, rare: Mapping[str, int], width: int) -> str:
    """Return the words at the begin of a name, then its rarest, then as many of the others as fit."""
    words = list(_WORD.finditer(text))
    kept: set[int] = set()
    seen: set[str] = set()
    rarest = sorted((at for at, word in enumerate(words) if word[0] in rare), key=lambda at: rare[words[at][0]])
    everything = range(len(words))
    for candidates, limit in ((everything, round(_HEAD * width)), (rarest, width), (everything, width)):
        for at in candidates:
            if words[at][0] in seen and candidates is rarest:
                continue
            if len(_joined(text, words, {*kept, at})) <= limit:
                kept.add(at)
                seen.add(words[at][0])
            elif candidates is everything:
                break
    return _joined(text, words, kept) if kept else shortened(text, width)


def _joined(text: str, words: Sequence[re.Match[str]], kept: Collection[int]) -> str:
    """Return the kept words, as they stand in the text if they are neighbours."""
    parts, next_ = [], 0
    for at in sorted(kept):
        before = words[at - 1].end() if at else 0
        parts.append(text[before : words[at].end()] if at == next_ else f"…{words[at][0]}")
        next_ = at + 1
    parts.append(text[words[-1].end() :] if next_ == len(words) else "…")
    return "".join(parts)


def _from_difference(names: Sequence[str], width: int) -> dict[str, str]:
    """Return the begin of each name, and what follows the place where the names begin to differ."""
    differing = (at for at, chars in enumerate(zip(*names, strict=False)) if len(set(chars)) > 1)
    at, head = next(differing, min(map(len, names))), round(_HEAD * width)
    made = {}
    for name in names:
        text = f"{name[:head]}…{name[at:]}"
        made[name] = text if len(text) <= width else f"{text[: width - 1]}…"
    for same in _owners(made).values():
        if 1 < len(same) < len(names):
            made |= _from_difference(same, width)
    return made
