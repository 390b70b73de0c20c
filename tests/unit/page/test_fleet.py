"""The page of a fleet: the heat map and its text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarker.fleet.results import Cell, FleetResult, NodeResult
from benchmarker.page.fleet import MOST_ROWS, page
from benchmarker.page.page_model import Figure, Heat
from benchmarker.page.render import render, specification


def fleet(nodes: int) -> FleetResult:
    """A fleet of two cases, of which the first node is slow in one and lacks the other."""
    cells = [
        Cell(
            node=f"n{number}",
            device=None,
            case=case,
            part="",
            verdict="slower" if number == 0 else "not suspected",
            step_s=0.01,
            shift=0.03 if number == 0 else (-1) ** number * 0.04 * number / nodes,
            low=0.028 if number == 0 else None,
            high=0.032 if number == 0 else None,
            p_value=None,
            p_adjusted=0.001 if number == 0 else None,
            rounds=12,
            evidence=["1800 MHz, others 2100"] if number == 0 else [],
        )
        for number in range(nodes)
        for case in ("GEMM", "STREAM")
        if (number, case) != (0, "STREAM")
    ]
    return FleetResult(
        headline="one of them is slow",
        doubts=["n1: did not end"],
        nodes=[
            NodeResult(node=f"n{number}", trials=3, failures={}, trouble="did not end" * (number == 1), unlike=[])
            for number in range(nodes)
        ],
        cells=cells,
        suspicions=1,
        controls=["n1"],
        alpha=0.05,
        delta=0.02,
        shared="torch on cuda",
    )


def heat_of(nodes: int) -> Figure:
    (figure,) = (part for part in page(fleet(nodes)).sections[0].parts if isinstance(part, Figure))
    return figure


def test_the_heat_map_has_named_nodes_first_and_gaps_where_nothing_was_measured() -> None:
    figure = heat_of(5)
    (heat,) = figure.marks
    assert isinstance(heat, Heat)
    assert (figure.rows, heat.columns) == (("n0", "n4", "n3", "n2", "n1"), ("GEMM", "STREAM"))
    assert heat.values[0] == (0.03, None)
    assert heat.values[1] == pytest.approx((0.032, 0.032))
    assert heat.limit == pytest.approx(0.06)
    assert heat.texts[0] == ("n0, GEMM: +3.0%, slower", "")
    mark = specification(figure)["marks"][0]
    assert (mark["type"], mark["limit"]) == ("heat", heat.limit)


def test_of_many_nodes_those_that_stand_out_are_drawn_and_the_data_has_all() -> None:
    figure = heat_of(400)
    assert len(figure.rows) == MOST_ROWS
    assert figure.rows[0] == "n0"
    assert len(figure.data.rows) == 2 * 400 - 1
    assert figure.left_out == f"Only the first {MOST_ROWS} of 400 rows are drawn; the data table has all."


def test_the_page_says_who_is_named_and_what_makes_one_doubt_it() -> None:
    made = page(fleet(5))
    assert [(card.verdict, card.figure) for card in made.cards] == [("slower", "+3.0%")]
    assert [doubt.text for doubt in made.doubts] == ["n1: did not end."]
    assert made.cards[0].sentence == "n0: GEMM."
    assert made.cards[0].detail == "95% interval +2.8% to +3.2%, p = 0.001. 1800 MHz, others 2100."
    text = render(made).decode()
    assert "1800 MHz, others 2100" in text
    assert "did not end" in text


def test_a_node_has_one_card_and_an_only_case_is_not_named() -> None:
    found = fleet(4)
    slow = [msgspec.structs.replace(found.cells[0], case=case, evidence=[]) for case in ("GEMM", "STREAM")]
    (card,) = page(msgspec.structs.replace(found, cells=slow)).cards
    assert card.detail.endswith("p = 0.001. Also STREAM +3.0%. Nothing that is recorded explains it.")
    (card,) = page(msgspec.structs.replace(found, cells=slow[:1])).cards
    assert card.sentence == "n0: step time."


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1200])
def test_a_browser_draws_300_rows_with_their_names(browser: Any, tmp_path: Path, width: int) -> None:
    file = tmp_path / "fleet.html"
    file.write_bytes(render(page(fleet(MOST_ROWS))))
    complaints: list[str] = []
    opened = browser.new_page(viewport={"width": width, "height": 900})
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(file.as_uri())
    opened.wait_for_selector("html[data-drawn]", state="attached", timeout=60_000)
    opened.locator("#plot-heat").scroll_into_view_if_needed()
    opened.wait_for_selector("#plot-heat[data-drawn]", timeout=60_000)
    names = opened.locator("#plot-heat .tick.row").all_text_contents()
    wide = opened.evaluate("document.documentElement.scrollWidth")
    opened.close()
    assert complaints == []
    assert len(set(names)) == MOST_ROWS
    assert wide <= width
