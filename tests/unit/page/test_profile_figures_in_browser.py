"""Icicles and time lines as a browser shows them: enlarged, searched, walked through with keys, within the screen."""

from pathlib import Path

import pytest
from support.profiles import torch_events, torch_json

from benchmarker.page.render import render
from benchmarker.page.traced import page as page_of_traces
from benchmarker.traces.ingest import ingest

pytestmark = pytest.mark.slow

TRACE = Path(__file__).parents[2] / "fixtures/traces/h200-torch-gpt2.json.gz"
HOSTILE = "</script><img src=x onerror=\"document.title = 'executed'\"><b>bold</b>"
KEYS = ("difference-icicle", "trace0-icicle", "trace0-step", "trace1-icicle", "trace1-step")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiles")
    events = torch_events()
    for event in events:
        if event["name"] == "sgemm_128x64":
            event["name"] = HOSTILE
    hostile = folder / "hostile.json"
    hostile.write_bytes(torch_json(events))
    path = folder / "report.html"
    path.write_bytes(render(page_of_traces([(each, ingest(each)) for each in (TRACE, hostile)], None)))
    return path


@pytest.fixture
def open_page(browser, file):
    complaints, contexts = [], []

    def make(width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(file.as_uri())
        return page

    yield make
    assert complaints == []
    for context in contexts:
        context.close()


def show(page, key):
    place = page.locator(f"#plot-{key}")
    place.scroll_into_view_if_needed()
    page.wait_for_selector(f"#plot-{key}[data-drawn]", timeout=60_000)
    return place


def names(place):
    return place.locator("svg .part text").all_text_contents()


def part(place, name):
    return place.locator(".part", has_text=name).first


def told(page):
    return page.locator("[role=status].unseen").text_content()


@pytest.mark.parametrize(
    ("width", "scheme"), [(360, "light"), (480, "dark"), (800, "light"), (1280, "dark"), (1600, "light")]
)
def test_all_are_drawn_at_every_width_and_none_is_wider_than_the_screen(open_page, width, scheme):
    page = open_page(width, color_scheme=scheme)
    for key in KEYS:
        place = show(page, key)
        across = place.evaluate("(place) => place.firstElementChild.getBoundingClientRect().width")
        assert across == pytest.approx(place.bounding_box()["width"], abs=1)
        if "icicle" in key:
            assert place.locator(".part").count() >= 5
        else:
            colours = place.evaluate(
                """(place) => {
                const sheet = place.querySelector("canvas"), pen = sheet.getContext("2d");
                const { data } = pen.getImageData(0, 0, sheet.width, sheet.height);
                return new Set(new Uint32Array(data.buffer)).size;
            }"""
            )
            assert colours > 10
    assert page.evaluate("document.scrollingElement.scrollWidth") == width
    if width == 360:
        page.locator("#table-ops").scroll_into_view_if_needed()
        beside = page.locator("#table-ops ~ * table").first.locator("td").nth(1).bounding_box()
        assert beside["x"] + beside["width"] < width, "only names are on the screen, and no number"


def test_numbers_of_printed_tables_are_whole_and_all_columns_are_on_the_paper(open_page):
    page = open_page(688)
    page.emulate_media(media="print")
    cells = "table:not(:has(th:nth-child(13))) td[data-v]"
    lines = """(cells) => cells.map((cell) => {
      const range = document.createRange();
      range.selectNodeContents(cell);
      return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size;
    })"""
    assert set(page.eval_on_selector_all(cells, lines)) == {1}
    assert max(page.eval_on_selector_all("table", "(tables) => tables.map((table) => table.offsetWidth)")) <= 688


def test_parts_are_as_wide_as_their_time_and_enlarged_by_click_keys_and_the_way_back(open_page):
    page = open_page()
    place = show(page, "trace0-icicle")
    found = ingest(TRACE)
    backward = found.events.loc[(found.events["phase"] == "backward") & found.events["kind"].isin(["kernel", "copy"])]
    share = backward["busy_ns"].sum() / found.trace.busy_ns
    whole = place.bounding_box()["width"]

    def width(name):
        return float(part(place, name).locator("rect").first.get_attribute("width"))

    assert width("all work") == pytest.approx(whole, abs=1)
    assert width("backward") == pytest.approx(share * whole, abs=1)
    part(place, "backward").click()
    assert width("backward") == pytest.approx(whole, abs=1)
    assert "forward" not in names(place)
    place.focus()
    page.keyboard.press("Escape")
    assert "forward" in names(place)
    part(place, "lm_head").click()
    way = page.locator("#figure-trace0-icicle .crumbs")
    assert [button.inner_text() for button in way.get_by_role("button").all()] == ["all work", "backward", "lm_head"]
    way.get_by_role("button", name="all work").click()
    assert width("all work") == pytest.approx(whole, abs=1)


def test_arrows_move_between_parents_children_and_siblings(open_page):
    page = open_page()
    show(page, "trace0-icicle").focus()
    seen = []
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "ArrowUp", "ArrowUp"):
        page.keyboard.press(key)
        seen.append(told(page).split("\n")[0])
    assert seen == ["all work", "backward", "forward", "backward", "lm_head", "backward", "all work", "all work"]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert "forward" not in names(page.locator("#plot-trace0-icicle"))
    assert "% of all" in told(page)
    outline = page.locator("#plot-trace0-icicle .found")
    colour = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--focus')")
    assert outline.get_attribute("stroke") == colour.strip()
    assert "press Enter" in page.locator("#figure-trace0-icicle .hint").inner_text()


def test_a_search_sums_what_it_finds_and_fades_the_rest(open_page):
    page = open_page()
    place = show(page, "trace0-icicle")
    page.locator("#figure-trace0-icicle input").fill("lm_head")
    events = ingest(TRACE).events
    time = events.loc[(events["leaf"] == "lm_head") & events["kind"].isin(["kernel", "copy"]), "busy_ns"].sum()
    assert page.locator("#figure-trace0-icicle .count").inner_text().startswith(f"2 parts: {time / 1e6:.4g} ms (")
    assert part(place, "lm_head").get_attribute("opacity") is None
    assert part(place, "loss").get_attribute("opacity") == "0.35"


def test_of_two_profiles_a_part_has_the_colour_of_the_side_where_it_takes_longer(open_page):
    page = open_page()
    place = show(page, "difference-icicle")
    first, second = (
        page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--s{at}')") for at in (0, 1)
    )
    parts = place.locator(".part rect").evaluate_all(
        "(all) => all.map((each) => [each.parentElement.dataset.side, each.getAttribute('fill')])"
    )

    def distance(one, two):
        return sum(abs(int(one[at : at + 2], 16) - int(two[at : at + 2], 16)) for at in (1, 3, 5))

    only_first = [colour for side, colour in parts if side == "0"]
    assert min(distance(colour, first.strip()) for colour in only_first) < 30
    only_second = [colour for side, colour in parts if side == "1"]
    assert min(distance(colour, second.strip()) for colour in only_second) < 30
    place.locator(".part[data-side='1']").last.hover()
    assert "only in the second" in page.locator("#tip").inner_text()


def view(place):
    return tuple(float(place.get_attribute(f"data-{end}")) for end in ("from", "to"))


def test_a_time_line_is_enlarged_and_moved_by_wheel_pointer_and_keys(open_page):
    page = open_page()
    place = show(page, "trace0-step")
    whole = view(place)
    box = place.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 60

    def after(act):
        act()
        page.wait_for_timeout(60)
        return view(place)

    page.mouse.move(x, y)
    page.keyboard.down("Control")
    near = after(lambda: page.mouse.wheel(0, -200))
    page.keyboard.up("Control")
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) * 2.718281828**-0.5, rel=0.01)
    page.mouse.down()
    page.mouse.move(x - 50, y, steps=3)
    moved = after(page.mouse.up)
    assert moved[0] - near[0] == pytest.approx(50 / box["width"] * (near[1] - near[0]), rel=0.05)
    place.focus()
    assert after(lambda: page.keyboard.press("Escape")) == whole
    assert after(lambda: page.keyboard.press("+"))[1] < whole[1]
    assert after(lambda: page.keyboard.press("-")) == whole
    page.keyboard.press("ArrowRight")
    first = told(page)
    page.keyboard.press("ArrowRight")
    assert first.startswith("idle: host")
    assert told(page) != first
    page.keyboard.press("ArrowDown")
    assert "gpu:0 stream 7" in told(page)
    closer = after(lambda: page.keyboard.press("Enter"))
    assert closer[1] - closer[0] < (whole[1] - whole[0]) / 10


def test_a_time_line_tells_sums_and_what_is_under_the_pointer(open_page):
    page = open_page()
    place = show(page, "trace0-step")
    figure = page.locator("#figure-trace0-step")
    chips = figure.locator("button.chip").all_inner_texts()
    assert chips[0].startswith("gemm 4.348 ms")
    assert "idle: host 22.38 ms" in [text.strip() for text in chips]
    box = place.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 45)
    assert page.locator("#tip").inner_text().startswith("idle: host")
    figure.locator("input").fill("cutlass")
    assert " boxes, " in figure.locator(".count").inner_text()
    figure.locator("input").press("Enter")
    assert "cutlass" in told(page)


def test_they_are_saved_as_pictures(open_page):
    page = open_page()
    for key, name, ending, first in (
        ("trace0-icicle", "Save SVG", "svg", b"<svg"),
        ("trace0-step", "Save PNG", "png", b"\x89PNG"),
    ):
        show(page, key)
        with page.expect_download() as waiting:
            page.locator(f"#figure-{key}").get_by_role("button", name=name).click()
        assert waiting.value.suggested_filename == f"{key}.{ending}"
        content = waiting.value.path().read_bytes()
        assert content.startswith(first)
        assert ending == "png" or b"font-family" in content


def test_names_of_kernels_are_text(open_page):
    page = open_page()
    for key in KEYS:
        show(page, key)
    assert "executed" not in page.title()
    assert page.locator("main img, main b, main script").count() == 0
    place = page.locator("#plot-trace1-icicle")
    place.focus()
    for _ in range(8):
        page.keyboard.press("ArrowDown")
    assert told(page).split("\n")[0] == HOSTILE
    assert page.locator("#tip").inner_text().split("\n")[0] == HOSTILE


def test_print_is_light_and_has_the_figures_without_their_tools(open_page):
    page = open_page(color_scheme="dark")
    page.emulate_media(media="print")
    page.wait_for_selector("html[data-theme=light]", state="attached")
    for key in KEYS:
        assert page.locator(f"#plot-{key} > :first-child").bounding_box()["width"] == pytest.approx(660, abs=1)
    assert page.locator("#main input:visible, .crumbs:visible, .hint:visible").count() == 0
