"""JUnit's XML: read back as others read it."""

from xml.etree import ElementTree

from benchmarker.procurement.junit import Item, document

HOSTILE = "a\x00b\x1b[31m<c>&\"'\ud800\ufffe\r\n]]>é"


def parsed(*items):
    return ElementTree.fromstring(document("suite", items))


def test_counts_and_children_by_outcome():
    root = parsed(
        Item("one", 1.5),
        Item("two", 2.25, "failure", "too slow", "repeat with: x"),
        Item("three", 0.0, "error", "cut"),
        Item("four", 0.0, "skipped", "not asked for"),
    )
    assert root.tag == "testsuites"
    (suite,) = root
    assert suite.tag == "testsuite"
    counts = {"tests": "4", "failures": "1", "errors": "1", "skipped": "1", "time": "3.750"}
    assert root.attrib == counts
    assert suite.attrib == {"name": "suite", **counts}
    assert [case.tag for case in suite] == ["testcase"] * 4
    assert [case.attrib for case in suite][1] == {"classname": "suite", "name": "two", "time": "2.250"}
    assert [[child.tag for child in case] for case in suite] == [[], ["failure", "system-out"], ["error"], ["skipped"]]
    assert suite[1].find("failure").get("message") == "too slow"
    assert suite[1].findtext("system-out") == "repeat with: x"


def test_no_text_can_break_the_document():
    root = parsed(Item(HOSTILE, 0.0, "failure", HOSTILE, HOSTILE))
    case = root[0][0]
    shown = "a\ufffdb\ufffd[31m<c>&\"'\ufffd\ufffd\r\n]]>é"
    assert case.get("name") == shown
    assert case.find("failure").get("message") == shown
    assert case.findtext("system-out") == shown.replace("\r\n", "\n")
