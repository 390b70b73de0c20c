"""The page of series along time: its answers, its figures, and how a browser draws it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.records import make_record

from benchmarker.comparing.history import Point, Series, Suspicion
from benchmarker.page.history import MOST_FIGURES, SUSPECTED, page
from benchmarker.page.page_model import Figure, Heat, Points, plain
from benchmarker.page.render import render
from benchmarker.records.factors import factors_of

FACTORS = factors_of(make_record().case)


def series(number: int = 0, factor: float = 1.1, points: int = 12, better: str = "lower") -> Series:
    """Points a day, from the seventh on a factor slower; half of them are also of other cases."""
    made = [
        Point(
            label=f"c{at}",
            run=f"run-{at}",
            started_at=f"2026-03-{at + 1:02}T00:00:00Z",
            value=(value := 1e-3 * (factor if at >= 6 else 1)),
            low=value * 0.99,
            high=value * 1.01,
            trials=3,
        )
        for at in range(points)
    ]
    change = Suspicion(
        before="c5",
        after="c6",
        at=6,
        first=6,
        last=7,
        ratio=factor,
        low=factor - 0.01,
        high=factor + 0.01,
        seen="c8",
        direction="worse" if better == "lower" else "better",
        environment=["driver 560.1 → 570.2"],
        confirm=[],
        unconfirmed="install each in turn",
    )
    return Series(
        case={**FACTORS, "ms": float(number)},
        metric="step_time_median_s",
        unit="s",
        better=better,
        points=made,
        changes=[change] if factor != 1 else [],
        left_out=0,
        trial_deviation=0.01,
    )


def figures(several: list[Series]) -> list[Figure]:
    return page(several, "commit").figures


def test_the_newest_change_is_the_answer_with_what_else_changed() -> None:
    made = page([series(0, 1.0), series(1)], "commit")
    assert [card.verdict for card in made.cards] == ["worse"]
    assert (made.cards[0].word, made.cards[0].figure) == ("worse, suspected", "+10.0%")
    assert made.cards[0].sentence.endswith("ms=1.0: worse since commit c6.")
    assert "Also changed there: driver 560.1 → 570.2." in made.cards[0].detail
    assert made.cards[0].detail.startswith("From 1 ms to 1.1 ms; 95% interval of the change +9.0% to +11.0%. ")
    assert "The change may lie anywhere between c5 and c7." in made.cards[0].detail
    assert [doubt.text for doubt in made.doubts] == [SUSPECTED]
    assert "install each in turn" in str(plain(made))


def test_a_figure_has_the_points_the_change_and_the_levels() -> None:
    (figure,) = figures([series()])
    dots, before, after = figure.marks
    assert isinstance(dots, Points) and isinstance(before, Points) and isinstance(after, Points)
    assert dots.y == tuple(point.value for point in series().points)
    assert figure.lines == (6.5,)
    assert [label for label in dots.labels if label] == ["c6"]
    assert (before.x, before.y) == ((0.6, 6.4), (1e-3, 1e-3))
    assert (after.x, after.y) == ((6.6, 12.4), pytest.approx((1.1e-3, 1.1e-3)))


def test_a_change_between_points_of_one_name_is_told_by_its_time() -> None:
    made = series()
    change = msgspec.structs.replace(made.changes[0], before="2.9", after="2.9", confirm=["git a", "run b"])
    page_of = page([msgspec.structs.replace(made, changes=[change])], "torch")
    assert page_of.cards[0].sentence.endswith("worse since 2026-03-07 00:00:00, with the same torch 2.9 before.")
    assert page_of.sections[0].commands == ("git a && run b",)
    timed = msgspec.structs.replace(change, before="2026-03-07 00:00", after="2026-03-07 00:00")
    page_of = page([msgspec.structs.replace(made, changes=[timed])], "date")
    assert page_of.cards[0].sentence.endswith("worse since 2026-03-07 00:00:00.")
    assert b'<td><span class="whole">2026-03-07</span> 00:00</td>' in render(page_of)


def test_all_cases_are_in_the_heat_map_with_worse_above_0() -> None:
    heat = figures([series(0), series(1, better="higher"), series(2, 1.0, points=3)])[1].marks[0]
    assert isinstance(heat, Heat)
    rows = sorted(heat.values, key=str)
    assert [row[-1] for row in rows] == [pytest.approx(-0.1), pytest.approx(0.1), None]
    assert heat.columns[0] == "2026-03-01"


def test_few_points_are_a_doubt_and_many_cases_are_left_out() -> None:
    made = page([series(number, 1.0, points=7) for number in range(MOST_FIGURES + 1)], "commit")
    assert made.doubts[0].text == "25 cases have fewer than 8 points, too few to find a change."
    assert f"The {MOST_FIGURES} of 25 cases with the newest changes are drawn" in str(plain(made))


def test_without_a_change_the_answer_says_so() -> None:
    made = page([msgspec.structs.replace(series(), changes=[])], "date")
    assert [card.word for card in made.cards] == ["no change found"]


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light")])
def test_a_browser_draws_it_within_the_screen(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    file = tmp_path / "history.html"
    made = [series(number) for number in range(3)]
    for each in made:
        each.points[6] = msgspec.structs.replace(each.points[6], label="29c10796b63d")
    file.write_bytes(render(page(made, "commit")))
    complaints: list[str] = []
    opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    opened.on("console", lambda message: complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(file.as_uri())
    for key in ("all-cases", "series-0", "series-2"):
        opened.locator(f"#plot-{key}").scroll_into_view_if_needed()
        opened.wait_for_selector(f"#plot-{key}[data-drawn]", timeout=60_000)
    wide = opened.evaluate("document.documentElement.scrollWidth")
    label = opened.locator("#plot-series-2 text.label").bounding_box()
    change = opened.locator("#plot-series-2 line[stroke-dasharray='2 3']").bounding_box()
    opened.close()
    assert complaints == []
    assert wide <= width
    assert label
    assert change
    assert not label["x"] - 1 < change["x"] < label["x"] + label["width"] + 1, "the name of a change lies on its line"
