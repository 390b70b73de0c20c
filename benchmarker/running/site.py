"""Settings of a site, for what is submitted to a launcher: one TOML file (docs/clusters.md)."""

import os
from pathlib import Path

import platformdirs
from msgspec import Struct

from benchmarker.api.errors import concerning
from benchmarker.files import toml

VARIABLE = "BENCHMARKER_SITE"


class Site(Struct, frozen=True, forbid_unknown_fields=True):
    """The launcher, its options by launcher, lines of shell before the program, and words before its command."""

    launcher: str = ""
    options: dict[str, dict[str, str | int | bool]] = {}
    setup: list[str] = []
    prefix: list[str] = []

    def options_of(self, launcher: str) -> dict[str, str]:
        """Return the options of a launcher as text; `true` is an option without a value, `false` is none."""
        given = self.options.get(launcher, {})
        return {name: "" if value is True else str(value) for name, value in given.items() if value is not False}


def read_site() -> Site:
    """Return the settings of the file that the variable names, or of the user's; raises `UserError` if it is faulty."""
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else platformdirs.user_config_path("benchmarker") / "site.toml"
    if not named and not path.exists():
        return Site()
    settings = toml.load(path)
    with concerning(path):
        return toml.take_table("the file", settings, Site)
