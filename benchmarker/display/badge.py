"""A badge for a README: one figure of one case as an SVG file that needs no network."""

from statistics import median
from xml.sax.saxutils import escape, quoteattr

from benchmarker.api.errors import UserError
from benchmarker.api.problem import FUNCTION
from benchmarker.formatting import clean, count, decimals, rounded, scale, shortened
from benchmarker.hooks.cases import Cases
from benchmarker.hooks.metrics import Derive, refuse_unknown

CHARACTER, MARGIN, HEIGHT = 6.6, 6, 20
"""Width of a character, space beside a text and height, in px."""
LONGEST = 40
"""Longest name of a case."""


def badge(cases: Cases, derive: Derive, metric: str) -> str:
    """Return the badge of a metric: the median over the successful trials, with the digits that their range leaves.

    One trial has two digits. The title has the number of trials, the day of the last one, and the machine. Raises
    `UserError` if there are several cases, or no value.
    """
    if len(cases) != 1:
        raise UserError(f"a badge shows one case, and there are {len(cases)}; select one with --where")
    (case,) = cases
    refuse_unknown([metric], case.records, derive)
    found = [(record, derive(record)[metric]) for record in case.ok]
    values = [one.value for _, one in found if one.value is not None]
    if not values:
        raise UserError(f"no trial has a {metric}; name another with --metric")
    last = found[-1][0]
    figure = _figure(values, found[0][1].unit)
    function = case.factors.get(FUNCTION)
    name = shortened(clean(str(function or case.factors["problem"])), LONGEST)
    machine = last.device.name if last.device and last.device.platform != "cpu" else last.machine.cpu.model
    title = f"{case.name}: {metric}, median of {count(len(values), 'trial')}, {last.started_at[:10]}, {machine}"
    return _drawn(name, figure, clean(title))


def _figure(values: list[float], unit: str) -> str:
    middle = median(values)
    size, prefixed = scale(middle, unit)
    half = (max(values) - min(values)) / 2 / size
    text = f"{middle / size:.{min(3, decimals(half))}f}" if half > 0 else rounded(middle / size, 2)
    return f"{text} {prefixed}".strip()


def _drawn(name: str, figure: str, title: str) -> str:
    left, right = (round(len(text) * CHARACTER) + 2 * MARGIN for text in (name, figure))
    texts = "".join(
        f'<text x="{start + MARGIN}" y="14" textLength="{width - 2 * MARGIN}" lengthAdjust="spacingAndGlyphs">'
        f"{escape(text)}</text>"
        for text, start, width in ((name, 0, left), (figure, left, right))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{HEIGHT}" role="img" '
        f"aria-label={quoteattr(f'{name}: {figure}')}><title>{escape(title)}</title>"
        f'<rect width="{left}" height="{HEIGHT}" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="{HEIGHT}" fill="#0b5d8a"/>'
        f'<g fill="#fff" font-family="Verdana, DejaVu Sans, sans-serif" font-size="11">{texts}</g></svg>\n'
    )
