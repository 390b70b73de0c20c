"""Sheets as Markdown, LaTeX, HTML and CSV; names from records are escaped in each."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from benchmarker.formatting import clean, spreadsheet_text

if TYPE_CHECKING:
    from benchmarker.tables.sheet import Cell, Sheet

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


def markdown(sheet: Sheet) -> str:
    """Return a sheet as a table of GitHub Flavored Markdown, with the notes as a list."""

    def line(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    rules = ["---:" if column.is_number else ":---" for column in sheet.columns]
    lines = [
        *([f"**{_markdown(sheet.title)}**", ""] if sheet.title else []),
        line(_markdown(column.heading) for column in sheet.columns),
        line(rules),
        *(line(_bold(cell, _markdown, "**{}**") for cell in row) for row in sheet.rows),
        *(["", *(f"- {_markdown(each)}" for each in remarks)] if (remarks := sheet.remarks()) else []),
    ]
    return "\n".join(lines) + "\n"


def latex(sheet: Sheet) -> str:
    """Return a sheet as a floating table of LaTeX, which needs the package booktabs."""
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "  \\centering",
        *([f"  \\caption{{{_latex(sheet.title)}}}"] if sheet.title else []),
        f"  \\begin{{tabular}}{{{''.join('r' if column.is_number else 'l' for column in sheet.columns)}}}",
        "    \\toprule",
    ]
    for level in range(sheet.levels):
        spans = sheet.spans(level)
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
    for row in sheet.rows:
        cells = [_bold(cell, _latex, "\\textbf{{{}}}") for cell in row]
        lines.append(f"    {' & '.join(cells)} \\\\")
    lines += ["    \\bottomrule", "  \\end{tabular}"]
    if remarks := sheet.remarks():
        lines += ["", "  \\smallskip", "  \\footnotesize\\raggedright"]
        lines += [f"  {_latex(each)}\\par" for each in remarks]
    return "\n".join([*lines, "\\end{table}"]) + "\n"


def html(sheet: Sheet) -> str:
    """Return a sheet as an HTML page with one table, which other pages can include."""
    lines = [
        '<!doctype html>\n<meta charset="utf-8">',
        f"<title>{escape(clean(sheet.title or 'Table'))}</title>",
        "<style>table { border-collapse: collapse } th, td { padding: 0.2em 0.6em; text-align: left }"
        " caption { text-align: left; font-weight: bold } .number { text-align: right; white-space: nowrap }"
        " thead { border-bottom: 1px solid }</style>",
        "<table>",
        *([f"<caption>{escape(clean(sheet.title))}</caption>"] if sheet.title else []),
        "<thead>",
    ]
    for level in range(sheet.levels):
        cells = (
            f'<th scope="{"colgroup" if n > 1 else "col"}"{f" colspan={n}" if n > 1 else ""}>{escape(clean(text))}</th>'
            for text, n in sheet.spans(level)
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    lines += ["</thead>", "<tbody>"]
    for row in sheet.rows:
        texts = [_bold(cell, lambda text: escape(clean(text)), "<strong>{}</strong>") for cell in row]
        heads = [f'<th scope="row">{text}</th>' for text in texts[: sheet.labels]]
        cells = (
            f'<td class="number">{text}</td>' if column.is_number else f"<td>{text}</td>"
            for text, column in zip(texts[sheet.labels :], sheet.columns[sheet.labels :], strict=True)
        )
        lines.append(f"<tr>{''.join([*heads, *cells])}</tr>")
    lines += ["</tbody>", "</table>", *(f"<p>{escape(clean(each))}</p>" for each in sheet.remarks())]
    return "\n".join(lines) + "\n"


def csv_text(headings: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV, one line each; no text is a formula or has control characters, and None and NaN are empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_csv_cell(each) for each in row] for row in (headings, *rows))
    return text.getvalue()


FORMATS: Mapping[str, Callable[[Sheet], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": lambda sheet: csv_text(sheet.plain_headings, sheet.plain_rows),
    "html": html,
}


def _bold(cell: Cell, escaped: Callable[[str], str], bold: str) -> str:
    return bold.format(escaped(cell.text)) if cell.best else escaped(cell.text)


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\g<0>", clean(text))


def _latex(text: str) -> str:
    escaped = "".join(_LATEX.get(char, char) for char in clean(text).replace("–", "\0"))
    return _DASHES.sub("-{}", _MINUS.sub("$-$", escaped)).replace("\0", "--")


def _csv_cell(value: Any) -> Any:
    if isinstance(value, str):
        return spreadsheet_text(clean(value))
    return None if isinstance(value, float) and math.isnan(value) else value
