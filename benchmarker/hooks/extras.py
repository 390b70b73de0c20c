"""Imports that only an extra of a distribution installs, and the command that installs it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from urllib.parse import unquote, urlsplit

from benchmarker.api.errors import UserError
from benchmarker.version import DISTRIBUTION


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Raise `UserError`, with the command that installs an extra, if a module that `what` needs is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "benchmarker").partition(".")[0] == "benchmarker":
            raise
        raise UserError(f"{what} needs the module '{error.name}'; {installing(extra)}") from error


def installing(extra: str, distribution: str = DISTRIBUTION) -> str:
    """Return the command that installs an extra: from the distribution's source, its file, or a registry.

    Metadata state where a distribution comes from unless it is a registry (PEP 610, `direct_url.json`).
    """
    try:
        stated = metadata.distribution(distribution).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return f"pip install '.[{extra}]' in the source of {distribution}"
    if stated is None:
        return f"pip install '{distribution}[{extra}]'"
    direct = json.loads(stated)
    if "dir_info" in direct:
        editable = "-e " if direct["dir_info"].get("editable") else ""
        path = unquote(urlsplit(direct["url"]).path)
        return f"pip install {editable}{shlex.quote(f'{path}[{extra}]')}"
    revision = direct.get("vcs_info")
    url = f"{revision['vcs']}+{direct['url']}@{revision['commit_id']}" if revision else direct["url"]
    return f"pip install '{distribution}[{extra}] @ {url}'"
