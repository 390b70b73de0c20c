"""Tables as Markdown, LaTeX, HTML and CSV: their structure, and that no name from a record is markup."""

import csv
import io
import re
from html.parser import HTMLParser

from benchmarker.tables.formats import FORMATS, csv_text, heading_levels
from benchmarker.tables.table import Column, Shown, Table

HOSTILE = r"a|b_c *x* <b>&amp; 50% $y$ #1 {z} \end ~^ `q` [l](u) --x"


def sheet(label="small", title="step time", best=True):
    columns = (
        Column("size"),
        Column("jax fp32 step_time_median_s", numeric=True, levels=("jax", "fp32", "ms")),
        Column("jax bf16", numeric=True, levels=("jax", "bf16", "ms"), only="print"),
        Column("torch fp32", numeric=True, levels=("torch", "fp32", "ms"), only="print"),
        Column("jax fp32 step_time_median_s low", only="data"),
    )
    times = Shown(0.0123, "12.3 ± 0.2", best=best), Shown(-0.004, "-4 ± 1 ?"), Shown(None, "out of memory")
    bold = "better" if best else ""
    return Table(columns, ((label, *times, 0.0121),), title=title, notes=("a note",), bold=bold)


def test_headings_span_the_columns_that_share_them():
    columns, _ = sheet().printed
    assert heading_levels(columns) == [
        [("", 1), ("jax", 2), ("torch", 1)],
        [("", 1), ("fp32", 1), ("bf16", 1), ("fp32", 1)],
        [("size", 1), ("ms", 1), ("ms", 1), ("ms", 1)],
    ]
    assert columns[1].heading == "jax fp32, ms"


def test_markdown_is_a_table_with_as_many_cells_in_every_line():
    text = FORMATS["markdown"](sheet())
    assert text.splitlines() == [
        "**step time**",
        "",
        "| size | jax fp32, ms | jax bf16, ms | torch fp32, ms |",
        "| :--- | ---: | ---: | ---: |",
        "| small | **12.3 ± 0.2** | -4 ± 1 ? | out of memory |",
        "",
        "- bold: better",
        "- a note",
    ]


def test_markdown_takes_nothing_of_a_name_as_markup():
    (row,) = [line for line in FORMATS["markdown"](sheet(HOSTILE)).splitlines() if "12.3" in line]
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
    first = re.split(r"(?<!\\) \|", row)[0].removeprefix("| ")
    assert not re.search(r"(?<!\\)[*<>`\[\]&$~]", first)
    assert re.sub(r"\\([\\`*\[\]<>|~&$_])", r"\1", first) == HOSTILE
    assert "seq_len" in FORMATS["markdown"](sheet("seq_len"))


def test_latex_is_a_booktabs_table_whose_environments_and_cells_are_balanced():
    text = FORMATS["latex"](sheet())
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    assert [text.count(f"\\{rule}rule\n") for rule in ("top", "mid", "bottom")] == [1, 1, 1]
    assert r"\begin{tabular}{lrrr}" in text
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    for line in body:
        spanned = sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d)\}", line))
        assert len(re.findall(r"(?<!\\)&", line)) + 1 + spanned == 4, line
    assert r"& \multicolumn{2}{c}{jax} & torch \\" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"\textbf{12.3 $\pm$ 0.2} & $-$4 $\pm$ 1 ?" in text
    assert r"bold: better\par" in text


def test_latex_escapes_every_special_character():
    (row,) = [line for line in FORMATS["latex"](sheet(HOSTILE, best=False)).splitlines() if "12.3" in line]
    first = row.strip().partition(" & 12.3")[0]
    assert first == (
        r"a\textbar{}b\_c *x* \textless{}b\textgreater{}\&amp; 50\% \$y\$ \#1 \{z\} \textbackslash{}end "
        r"\textasciitilde{}\textasciicircum{} \textasciigrave{}q\textasciigrave{} [l](u) -{}-x"
    )
    text = FORMATS["latex"](sheet(HOSTILE, title=HOSTILE))
    plain = re.sub(r"\\[{}$&#_%]", "", text.partition("\n")[2])
    assert plain.count("{") == plain.count("}")
    assert "%" not in plain


def test_html_is_well_formed_and_shows_names_as_they_are():
    text = FORMATS["html"](sheet(HOSTILE, title="<script>"))
    seen, opened = [], []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag not in ("meta",):
                opened.append(tag)

        def handle_endtag(self, tag):
            assert opened.pop() == tag

        def handle_data(self, data):
            seen.append(data)

    Reader().feed(text)
    assert opened == []
    assert HOSTILE in seen
    assert "<script>" in seen
    assert '<th scope="colgroup" colspan=2>jax</th>' in text
    assert '<td class="number"><strong>12.3 ± 0.2</strong></td>' in text
    assert "<p>bold: better</p>" in text


def test_csv_has_plain_numbers_and_no_formula():
    rows = list(csv.reader(io.StringIO(FORMATS["csv"](sheet("=1+1")))))
    name = "jax fp32 step_time_median_s"
    assert rows == [["size", name, f"{name} low"], ["'=1+1", "0.0123", "0.0121"]]
    assert csv_text(["a"], [[None], [float("nan")], ["x\ny"]]).splitlines()[3] == "x\\x0ay"


def test_control_characters_are_escaped_in_every_format():
    for write in FORMATS.values():
        assert "\x1b" not in write(sheet("a\x1b[31m"))
