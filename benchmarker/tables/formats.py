"""Tables as Markdown, LaTeX, HTML and CSV; names from records are escaped in each."""

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from benchmarker.formatting import clean, spreadsheet_text
from benchmarker.tables import terminal
from benchmarker.tables.table import Cell, Column, Shown, Table, cell_text

_MARKDOWN = re.compile(r"[\\`*\[\]<>|~&$]|(?<![^\W_])_|_(?![^\W_])")
"""What Markdown would take as markup. An underscore between letters is none."""
_LATEX = {
    **{char: f"\\{char}" for char in "{}$&#_%"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "`": r"\textasciigrave{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "…": r"\ldots{}",
    "°": r"$^\circ$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "→": r"$\to$",
    "µ": r"$\mu$",
    "Δ": r"$\Delta$",
    "\u03b1": r"$\alpha$",
    "δ": r"$\delta$",
}
"""What LaTeX would take as a command, or may not find in its fonts."""
_MINUS, _DASHES = re.compile(r"(?<![\w.])-(?=\d)"), re.compile("-(?=-)")
"""The sign of a number; hyphens that LaTeX would join to a dash."""


def markdown(table: Table) -> str:
    """Return a table in GitHub Flavored Markdown, with the notes as a list."""

    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    columns, rows = table.printed
    rules = ["---:" if column.numeric else ":---" for column in columns]
    lines = [
        *([f"**{markdown_text(table.title)}**", ""] if table.title else []),
        line(markdown_text(column.heading) for column in columns),
        line(rules),
        *(line(text for text in _texts(row, columns, markdown_text, "**{}**")) for row in rows),
        *(["", *(f"- {markdown_text(each)}" for each in remarks)] if (remarks := table.remarks()) else []),
    ]
    return "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    """Return a table as a floating table of LaTeX, which needs the package booktabs."""
    columns, rows = table.printed
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "  \\centering",
        *([f"  \\caption{{{_latex(table.title)}}}"] if table.title else []),
        f"  \\begin{{tabular}}{{{''.join('r' if column.numeric else 'l' for column in columns)}}}",
        "    \\toprule",
    ]
    for spans in heading_levels(columns):
        texts = [_latex(text) for text, _ in spans]
        cells = [
            f"\\multicolumn{{{n}}}{{c}}{{{text}}}" if n > 1 else text for text, (_, n) in zip(texts, spans, strict=True)
        ]
        lines.append(f"    {' & '.join(cells)} \\\\")
        first = 1
        rules = []
        for _, n in spans:
            rules += [f"\\cmidrule(lr){{{first}-{first + n - 1}}}"] if n > 1 else []
            first += n
        lines += [f"    {' '.join(rules)}"] if rules else []
    lines.append("    \\midrule")
    for row in rows:
        cells = _texts(row, columns, _latex, "\\textbf{{{}}}")
        lines.append(f"    {' & '.join(cells)} \\\\")
    lines += ["    \\bottomrule", "  \\end{tabular}"]
    if remarks := table.remarks():
        lines += ["", "  \\smallskip", "  \\footnotesize\\raggedright"]
        lines += [f"  {_latex(each)}\\par" for each in remarks]
    return "\n".join([*lines, "\\end{table}"]) + "\n"


def html(table: Table) -> str:
    """Return an HTML page with one table, which other pages can include."""
    lines = [
        '<!doctype html>\n<meta charset="utf-8">',
        f"<title>{escape(clean(table.title or 'Table'))}</title>",
        "<style>table { border-collapse: collapse } th, td { padding: 0.2em 0.6em; text-align: left }"
        " caption { text-align: left; font-weight: bold } .number { text-align: right; white-space: nowrap }"
        " thead { border-bottom: 1px solid }</style>",
    ]
    return "\n".join(lines) + "\n" + html_table(table)


def html_table(table: Table) -> str:
    """Return a table with its notes as a piece of a page."""
    columns, rows = table.printed
    lines = [
        "<table>",
        *([f"<caption>{escape(clean(table.title))}</caption>"] if table.title else []),
        "<thead>",
    ]
    for spans in heading_levels(columns):
        cells = (
            f'<th scope="{"colgroup" if n > 1 else "col"}"{f" colspan={n}" if n > 1 else ""}>{escape(clean(text))}</th>'
            for text, n in spans
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    lines += ["</thead>", "<tbody>"]
    for row in rows:
        texts = _texts(row, columns, lambda text: escape(clean(text)), "<strong>{}</strong>")
        heads = [f'<th scope="row">{text}</th>' for text in texts[: table.labels]]
        cells = (
            f'<td class="number">{text}</td>' if column.numeric else f"<td>{text}</td>"
            for text, column in zip(texts[table.labels :], columns[table.labels :], strict=True)
        )
        lines.append(f"<tr>{''.join([*heads, *cells])}</tr>")
    lines += ["</tbody>", "</table>", *(f"<p>{escape(clean(each))}</p>" for each in table.remarks())]
    return "\n".join(lines) + "\n"


Table._repr_html_ = html_table


def csv_text(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV, one line each; no text is a formula or has control characters, and None and NaN are empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_csv_cell(each) for each in row] for row in (headings, *rows))
    return text.getvalue()


FORMATS: Mapping[str, Callable[[Table], str]] = {
    "text": terminal.text,
    "markdown": markdown,
    "latex": latex,
    "csv": lambda table: csv_text(*table.data),
    "html": html,
}


def heading_levels(columns: Sequence[Column]) -> list[list[tuple[str, int]]]:
    """Return the headings of each level from the top down, each with the number of columns that it spans.

    The heading of a column with fewer levels stands on the lowest one.
    """
    several = [column.levels or (column.heading,) for column in columns]
    depth = max(map(len, several), default=1)
    paths = [("",) * (depth - len(levels)) + levels for levels in several]
    found = []
    for level in range(depth):
        spans: list[tuple[str, int]] = []
        for above, path in zip([None, *paths], paths, strict=False):
            is_same = above and above[: level + 1] == path[: level + 1] and path[level] and level < depth - 1
            spans.append((path[level], spans.pop()[1] + 1 if is_same else 1))
        found.append(spans)
    return found


def _texts(row: Sequence[Cell], columns: Sequence[Column], escaped: Callable[[str], str], bold: str) -> list[str]:
    """Return the cells of a row as escaped texts, the best in bold."""
    texts = [escaped(cell_text(cell, column)) for cell, column in zip(row, columns, strict=True)]
    return [
        bold.format(text) if isinstance(cell, Shown) and cell.best else text
        for text, cell in zip(texts, row, strict=True)
    ]


def markdown_text(text: str) -> str:
    """Return a text in which Markdown finds no markup."""
    return _MARKDOWN.sub(r"\\\g<0>", clean(text))


def _latex(text: str) -> str:
    escaped = "".join(_LATEX.get(char, char) for char in clean(text).replace("–", "\0"))
    return _DASHES.sub("-{}", _MINUS.sub("$-$", escaped)).replace("\0", "--")


def _csv_cell(value: Any) -> Any:
    if isinstance(value, str):
        return spreadsheet_text(clean(value))
    return None if isinstance(value, float) and math.isnan(value) else value
