"""What is in the pages of reports."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from typing import Any


def figures_in(page: str) -> list[dict[str, Any]]:
    """The figures of a page, as its script reads them."""
    (text,) = re.findall(r'<script type="text/plain" id="figures">([^<]*)</script>', page)
    return json.loads(gzip.decompress(b64decode(text, validate=True)))
