"""The page as a browser shows it: drawn, silent, within the screen, and usable with a keyboard."""

import csv
import io
import subprocess
import sys
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.slow

HOSTILE = "<script>document.title = 'executed'</script>"


@pytest.fixture(scope="module")
def file(rich_place, tmp_path_factory):
    path = tmp_path_factory.mktemp("browser") / "report.html"
    command = [sys.executable, "-m", "benchmarker", "report", str(rich_place), "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


class Seen:
    """A page that is open, and what it asked for and complained of."""

    def __init__(self, browser, file, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.requests, self.complaints = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-drawn]", state="attached", timeout=60_000)

    def scroll_to(self, key):
        """Scroll to a figure, and wait until it is drawn."""
        self.page.locator(f"#plot-{key}").scroll_into_view_if_needed()
        self.page.wait_for_selector(f"#plot-{key}[data-drawn]", timeout=60_000)
        return self.page.locator(f"#plot-{key}")

    def scroll_through(self):
        for key in self.page.eval_on_selector_all(".plot", "(plots) => plots.map((plot) => plot.dataset.figure)"):
            self.scroll_to(key)


@pytest.fixture(scope="module")
def open_page(browser, file):
    opened = []

    def make(**options):
        opened.append(Seen(browser, file, **options))
        return opened[-1]

    yield make
    for each in opened:
        each.context.close()


@pytest.fixture(scope="module")
def seen(open_page):
    opened = open_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    opened.scroll_through()
    return opened


BROKEN = """() => [...document.querySelectorAll("h2, h3, p, li, td, th, summary, button")].flatMap((cell) => {
  const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), found = [];
  while (walk.nextNode()) {
    for (const word of walk.currentNode.data.matchAll(/\\w{4,40}/g)) {
      const range = document.createRange();
      range.setStart(walk.currentNode, word.index);
      range.setEnd(walk.currentNode, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) found.push(word[0]);
    }
  }
  return found;
})"""
"""The words of the page that are on more than one line."""
MARKS = """() => [...document.querySelectorAll(".plot:not(:has(canvas))")].map((plot) => {
  const frame = plot.querySelector("svg").getBoundingClientRect();
  const marks = [...plot.querySelectorAll(".mark > *")].map((mark) => mark.getBoundingClientRect());
  const inside = marks.filter((box) => box.width + box.height > 1 && box.left >= frame.left - 1
    && box.right <= frame.right + 1 && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1);
  const { width, height } = frame;
  return { key: plot.dataset.figure, width, height, marks: marks.length, inside: inside.length };
})"""
"""The figures, their sizes, and how many shapes of their marks there are, and lie inside, and are not empty."""
CROSSING = """() => [...document.querySelectorAll(".plot:not(:has(canvas))")].flatMap((plot) => {
  const frame = plot.querySelector("svg").getBoundingClientRect();
  const boxes = [...plot.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  const cut = boxes.filter(([, box]) => box.left < frame.left - 1 || box.right > frame.right + 1
    || box.top < frame.top - 1 || box.bottom > frame.bottom + 1);
  const found = cut.map(([text]) => `${plot.id}: ${text} is cut`);
  boxes.forEach(([one, box], at) => boxes.slice(at + 1).forEach(([two, other]) => {
    const across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
    const up = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
    if (across > 1 && up > 3) found.push(`${plot.id}: ${one} touches ${two}`);
  }));
  return found;
})"""
"""The texts of figures that are cut or lie on each other."""
WIDTHS = [360, 390, 768, 1280, 1600]


@pytest.mark.parametrize("width", WIDTHS)
def test_at_every_width_nothing_is_cut_broken_empty_or_on_top_of_each_other(open_page, width):
    opened = open_page(viewport={"width": width, "height": 900})
    page = opened.page
    opened.scroll_through()
    assert page.evaluate(CROSSING) == []
    for figure in page.evaluate(MARKS):
        assert width * 0.5 < figure["width"] <= width, figure
        assert figure["height"] > 80, figure
        assert 0 < figure["marks"] == figure["inside"], figure
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    page.wait_for_timeout(100)
    assert page.evaluate(BROKEN) == []
    across, visible = page.evaluate("[document.scrollingElement.scrollWidth, document.scrollingElement.clientWidth]")
    assert across <= visible == width
    assert opened.complaints == []


def test_figures_are_drawn_when_they_are_scrolled_to_and_take_their_space_before(open_page):
    opened = open_page(viewport={"width": 1280, "height": 900})
    page = opened.page
    drawn = page.eval_on_selector_all(".plot[data-drawn]", "(plots) => plots.map((plot) => plot.id)")
    assert drawn == ["plot-ratios"]  # the picture of the answer, on the first screen
    assert page.locator("main .plot svg").count() == 0
    place = page.locator("#plot-blocks")
    before = place.bounding_box()["height"]
    assert opened.scroll_to("blocks").bounding_box()["height"] == pytest.approx(before, abs=2)
    assert page.locator("#plot-power[data-drawn]").count() == 0


def test_it_asks_for_nothing_and_complains_of_nothing(seen, file):
    assert [url for url in seen.requests if not url.startswith(("data:", "blob:"))] == [file.as_uri()]
    assert seen.complaints == []


def test_every_figure_is_drawn(seen):
    keys = {figure["key"] for figure in seen.page.evaluate(MARKS)}
    assert {"ratios", "samples_per_s", "blocks", "power", "categories", "ttft-load-0", "over-time-0"} <= keys


def test_names_stand_beside_what_they_name_instead_of_in_a_legend(seen):
    def texts(key, kind):
        return sorted(seen.page.locator(f"#plot-{key} .{kind}").all_text_contents())

    assert (texts("sweep-0-samples_per_s", "direct"), texts("sweep-0-samples_per_s", "legend")) == (["one", "two"], [])
    assert (texts("ratios", "label"), texts("ratios", "legend")) == (["slower"] * 3, [])
    assert texts("samples_per_s", "legend") == texts("density-0", "legend") == []  # the names of rows have the sides
    assert "others" in texts("categories", "legend") or "(not listed)" in texts("categories", "legend")


def test_names_are_shown_as_text_and_not_executed(seen):
    assert seen.page.title().startswith(HOSTILE)
    assert HOSTILE in seen.page.inner_text("h1")
    assert seen.page.locator("img, b, main script").count() == 0
    legend = seen.page.locator("#plot-power .legend").first
    assert "GPU-<b>a" in legend.text_content()
    assert legend.locator("*").count() == 0


def test_tables_sort_by_mouse_and_keyboard(seen):
    page = seen.page
    header = page.locator("#results th", has_text="samples/s")
    column = header.evaluate("(cell) => cell.cellIndex")

    def values():
        return page.eval_on_selector_all(
            "#results tbody tr", f"(rows) => rows.map((row) => Number(row.cells[{column}].dataset.v))"
        )

    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert values() == sorted(values(), reverse=True)
    header.locator("button").focus()
    page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    assert values() == sorted(values())
    assert len(set(values())) == 6


def test_the_first_stop_of_the_keyboard_skips_to_the_verdicts_and_others_are_sort_buttons(open_page):
    page = open_page(viewport={"width": 1280, "height": 900}).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("document.activeElement.closest('th') ? 'sort' : document.activeElement.tagName"))
    assert "sort" in stops
    assert "SUMMARY" in stops
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_tables_filter(browser, tmp_path, place, two):
    from support.records import make_record

    results = place([make_record(1.0 + seed, case={"seed": seed}, design={"case_number": seed}) for seed in range(20)])
    path = tmp_path / "many.html"
    command = [sys.executable, "-m", "benchmarker", "report", str(results), "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    opened = Seen(browser, path)
    try:
        opened.page.fill("#results input", "seed=1")
        assert opened.page.locator("#results tbody tr:visible").count() == 11  # 1 and 10 to 19
        assert opened.page.inner_text("#results .count") == "11 of 20 rows"
        opened.page.fill("#results input", "")
        assert opened.page.locator("#results tbody tr:visible").count() == 20
    finally:
        opened.context.close()


def downloaded(page, button):
    with page.expect_download() as waiting:
        button.click()
    text = waiting.value.path().read_bytes().decode("utf-8-sig")
    return waiting.value.suggested_filename, list(csv.reader(io.StringIO(text, newline="")))


def test_the_csv_of_a_figure_is_what_is_drawn(seen):
    page = seen.page
    details = page.locator("details.data[data-figure=blocks]")
    details.locator("summary").click()
    name, (head, *rows) = downloaded(page, details.get_by_role("button", name="Download CSV"))
    assert name == "blocks.csv"
    assert head == ["case", "side", "p5_s", "q1_s", "median_s", "q3_s", "p95_s", "timed blocks"]
    medians, quartiles = page.evaluate(
        """() => {
            const place = document.getElementById('plot-blocks'), middle = (box) => (box.left + box.right) / 2;
            const at = (element) => middle(element.getBoundingClientRect());
            const ticks = [...place.querySelectorAll('.tick.x')].map((tick) => [Number(tick.dataset.value), at(tick)]);
            const [[low, left], [high, right]] = [ticks[1], ticks.at(-2)];
            const value = (pixel) => low + ((pixel - left) / (right - left)) * (high - low);
            return [
              [...place.querySelectorAll('.median')].map((median) => value(at(median))),
              [...place.querySelectorAll('.box')].map((box) => value(box.getBoundingClientRect().left)),
            ];
        }"""
    )
    assert sorted(medians) == pytest.approx(sorted(float(row[4]) for row in rows), rel=0.01)
    assert sorted(quartiles) == pytest.approx(sorted(float(row[3]) for row in rows), rel=0.02)
    assert details.locator("tbody tr").count() == len(rows) == 6


def test_texts_do_not_become_formulas_in_a_csv(seen):
    page = seen.page
    page.locator("summary", has_text="What is the same").click()
    box = page.locator("#environment .table", has_text="=HYPERLINK")
    _, rows = downloaded(page, box.get_by_role("button", name="Download CSV"))
    names = [row[0] for row in rows]
    assert '\'=HYPERLINK("http://example.org")' in names
    assert not [cell for row in rows for cell in row if cell[:1] in ("=", "+", "-", "@") and len(cell) > 1]


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def first_colour(page):
    return page.evaluate("document.querySelector('#plot-blocks .box').getAttribute('stroke')")


def test_dark_follows_the_system_and_the_button_and_so_do_figures(open_page):
    opened = open_page(color_scheme="dark", viewport={"width": 1280, "height": 900})
    page = opened.page
    opened.scroll_to("blocks")
    assert background(page) == "rgb(20, 23, 27)"
    dark = first_colour(page)
    page.click("#theme")
    assert background(page) == "rgb(251, 250, 248)"
    assert first_colour(page) != dark
    page.click("#theme")
    assert first_colour(page) == dark


def test_it_prints_light_without_buttons_and_with_tables_whole(open_page):
    page = open_page(viewport={"width": 720, "height": 900}, color_scheme="dark").page
    page.emulate_media(media="print")
    page.wait_for_selector("html[data-theme=light]", state="attached")
    assert background(page) == "rgb(255, 255, 255)"
    assert page.locator(".csv:visible, nav:visible, #theme:visible").count() == 0
    assert page.locator("details.fold:not([open])").count() == 0
    assert page.locator(".plot:not([data-drawn])").count() == 0
    boxes = page.locator(".scroll")
    assert {boxes.nth(at).evaluate("(box) => getComputedStyle(box).maxHeight") for at in range(boxes.count())} == {
        "none"
    }
    page.emulate_media(media="screen")
    page.wait_for_selector("html[data-theme=dark]", state="attached")
    assert page.locator("details.fold[open]").count() == 0
    assert page.pdf(format="A4").startswith(b"%PDF-")


def test_print_is_noticed_also_while_the_page_asks_whether_it_prints(open_page):
    """Chromium sends no event of a media query for a change that a read of `matches` saw first."""
    page = open_page(color_scheme="dark").page
    page.evaluate("void setInterval(() => document.getElementById('theme').click(), 0)")
    page.emulate_media(media="print")
    page.wait_for_selector("body:not(:has(details.fold:not([open])))")


def test_words_of_commands_are_whole_and_the_box_scrolls(open_page):
    page = open_page(viewport={"width": 800, "height": 800}).page
    cell = page.locator("#faults td.command").first
    command = "benchmarker run --problem='</script><b>bold</b>' --batch-size=16"
    assert cell.text_content() == command
    words = cell.locator("span")
    assert {words.nth(at).evaluate("(word) => word.getClientRects().length") for at in range(words.count())} == {1}
    assert cell.evaluate("(cell) => cell.clientWidth") >= 28 * 16
    assert cell.evaluate("(cell) => { const box = cell.closest('.scroll'); return box.scrollWidth > box.clientWidth; }")


def test_the_buttons_of_a_figure_show_under_the_pointer_or_the_keyboard_alone(open_page):
    opened = open_page(viewport={"width": 1280, "height": 900})
    page = opened.page
    opened.scroll_to("ratios")
    tools = page.locator("#figure-ratios .figure-tools")

    def look():
        page.wait_for_timeout(300)  # it fades
        return tools.evaluate("(tools) => getComputedStyle(tools).opacity")

    assert look() == "0"
    page.locator("#plot-ratios").hover()
    assert look() == "1"
    page.mouse.move(0, 0)
    tools.get_by_role("button", name="Save SVG").focus()
    assert look() == "1"


def test_a_figure_is_saved_as_a_picture_with_its_title(seen):
    with seen.page.expect_download() as waiting:
        seen.page.locator("#figure-blocks").get_by_role("button", name="Save SVG").click()
    assert waiting.value.suggested_filename == "blocks.svg"
    image = ElementTree.fromstring(waiting.value.path().read_bytes())
    texts = " ".join(image.itertext())
    assert "Step time of timed blocks" in texts
    assert HOSTILE[:12] in texts
    assert "var(" not in waiting.value.path().read_text("utf-8")


def tip(page):
    return page.locator("#tip:visible")


def test_the_pointer_and_the_keyboard_find_marks_and_tell_them(open_page):
    opened = open_page(viewport={"width": 1280, "height": 900})
    page = opened.page
    place = opened.scroll_to("blocks")
    assert tip(page).count() == 0
    place.locator(".box").first.hover(force=True)
    assert tip(page).inner_text().startswith(HOSTILE)
    assert "median" in tip(page).inner_text()
    page.mouse.move(0, 0)
    assert tip(page).count() == 0
    place.focus()
    texts = []
    for key in ("ArrowDown", "ArrowDown", "ArrowUp", "End", "Home"):
        page.keyboard.press(key)
        texts.append(page.locator("[role=status].unseen").text_content())
        assert tip(page).text_content() == texts[-1]
    first, second, again, last, home = texts
    assert first == again == home
    assert len({first, second, last}) == 3
    opened.scroll_to("samples_per_s").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("[role=status].unseen").text_content().endswith(" samples/s")


def ticks(place):
    return [
        float(value)
        for value in place.locator(".tick.x").evaluate_all("(all) => all.map((each) => each.dataset.value)")
    ]


def test_an_axis_is_zoomed_and_reset_by_pointer_and_keyboard(open_page):
    opened = open_page(viewport={"width": 1280, "height": 900})
    page = opened.page
    place = opened.scroll_to("power")
    whole = ticks(place)
    reset = page.locator("#figure-power").get_by_role("button", name="Reset zoom")
    box = place.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 300, y)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, y, steps=4)
    page.mouse.up()
    near = ticks(place)
    assert near[-1] - near[0] < (whole[-1] - whole[0]) / 4
    assert reset.is_visible()
    page.mouse.dblclick(box["x"] + 300, y)
    assert ticks(place) == whole
    assert not reset.is_visible()
    place.focus()
    page.keyboard.press("+")
    assert ticks(place)[-1] < whole[-1]
    page.keyboard.press("-")
    assert ticks(place) == whole
    page.keyboard.press("+")
    page.keyboard.press("Escape")
    assert ticks(place) == whole
    place.focus()
    page.keyboard.press("+")
    reset.click()
    assert ticks(place) == whole


def test_the_first_two_printed_pages_are_the_answer_and_what_is_signed(open_page):
    page = open_page(viewport={"width": 1280, "height": 900}).page
    assert not page.locator(".signatures").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".signatures").is_visible()
    assert page.locator(".evidence table").is_visible()
    page.add_style_tag(content=".body, footer { display: none !important }")
    assert page.pdf(format="A4").count(b"/Type /Page\n") == 2


def test_a_touch_tells_a_mark_and_does_not_zoom(open_page):
    opened = open_page(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    place = opened.scroll_to("power")
    before, box = ticks(place), place.bounding_box()
    opened.page.touchscreen.tap(box["x"] + 150, box["y"] + box["height"] - 130)
    assert tip(opened.page).count() == 1
    assert ticks(place) == before
    assert opened.page.locator("#figure-power").get_by_role("button", name="Save SVG").is_visible()


def test_every_heading_figure_and_case_has_a_link_and_one_into_a_folded_part_opens_it(browser, file, open_page):
    page = open_page(viewport={"width": 1280, "height": 900}).page
    links = page.eval_on_selector_all("a.anchor", "(all) => all.map((each) => each.getAttribute('href'))")
    assert {"#verdicts", "#figure-ratios", "#table-comparisons", "#table-evidence-for-each-verdict"} <= set(links)
    assert len([link for link in links if link.startswith("#case-")]) == 3
    assert len(set(links)) == len(links)
    assert page.evaluate("(links) => links.filter((link) => !document.querySelector(link))", links) == []
    anchor = page.locator("a.anchor[href='#verdicts']")
    assert anchor.evaluate("(each) => getComputedStyle(each).opacity") == "0"
    anchor.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert anchor.evaluate("(each) => getComputedStyle(each).opacity") == "1"
    page.goto(f"{file.as_uri()}#table-evidence-for-each-verdict")
    assert page.locator("#table-evidence-for-each-verdict").evaluate("(each) => each.open")
    page.evaluate("(link) => { location.hash = link; }", next(link for link in links if link.startswith("#case-")))
    assert page.locator("tr:target").is_visible()


@pytest.mark.parametrize("part", ["figure-power", "environment"])
def test_a_link_leads_to_its_target_whatever_is_drawn_on_the_way(browser, file, open_page, part):
    """Profiles, which take more space once they are drawn, are before both: on an open page and on one that opens."""
    page = open_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce").page
    page.evaluate("(part) => { location.hash = part; }", part)
    opening = browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    opening.goto(f"{file.as_uri()}#{part}")
    for each in (page, opening):
        each.wait_for_timeout(500)
        assert each.locator(f"#{part}").bounding_box()["y"] == pytest.approx(16, abs=2)
    opening.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_checker_finds_nothing(open_page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    opened = open_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    opened.scroll_through()
    opened.page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    found = axe.Axe().run(opened.page).response["violations"]
    assert [(each["id"], [node["html"][:200] for node in each["nodes"]][:5]) for each in found] == []
