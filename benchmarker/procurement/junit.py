"""Write JUnit XML for continuous integration: a suite of cases that passed, failed, had an error or were skipped."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

_BARRED = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow (W3C, fifth edition, 2.2)."""


@dataclass(frozen=True, slots=True)
class Item:
    """One test case: its name, its duration, its outcome, and why it did not pass."""

    name: str
    duration_s: float
    outcome: Literal["passed", "failure", "error", "skipped"] = "passed"
    message: str = ""
    output: str = ""


def document(suite: str, tests: Sequence[Item]) -> bytes:
    """Return the XML of one suite; characters that XML does not allow are replaced by U+FFFD."""
    outcomes = Counter(test.outcome for test in tests)
    counts = {
        "tests": str(len(tests)),
        "failures": str(outcomes["failure"]),
        "errors": str(outcomes["error"]),
        "skipped": str(outcomes["skipped"]),
        "time": f"{sum(test.duration_s for test in tests):.3f}",
    }
    root = ElementTree.Element("testsuites", counts)
    element = ElementTree.SubElement(root, "testsuite", {"name": _text(suite), **counts})
    for test in tests:
        named = {"classname": _text(suite), "name": _text(test.name), "time": f"{test.duration_s:.3f}"}
        case = ElementTree.SubElement(element, "testcase", named)
        if test.outcome != "passed":
            ElementTree.SubElement(case, test.outcome, {"message": _text(test.message)})
        if test.output:
            ElementTree.SubElement(case, "system-out").text = _text(test.output)
    ElementTree.indent(root)
    content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return content


def _text(text: str) -> str:
    return _BARRED.sub("\ufffd", text)
