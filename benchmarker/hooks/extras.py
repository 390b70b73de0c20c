"""The command that installs an extra of a distribution, in the way in which the distribution was installed."""

from __future__ import annotations

import json
import shlex
from importlib import metadata
from urllib.parse import unquote, urlsplit

from benchmarker.version import DISTRIBUTION


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
