"""Make docs/pictures from records: a terminal, and a report in the colours of both themes.

It needs Chromium, and what the extra dev installs. `make pictures` runs it; another bundle or folder is named:

    python docs/pictures.py [BUNDLE [FOLDER]]
"""

from __future__ import annotations

import io
import os
import pty
import shlex
import shutil
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Locator, ViewportSize, sync_playwright
from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
BUNDLE = HERE / "examples" / "framework-h200.zip"
"""GPT-2 in PyTorch and JAX on an H200, three trials each with profiles. Names of machines and paths are redacted."""
PICTURES = HERE / "pictures"
COMMANDS = ("show gpt2 --trials", "profile scopes gpt2 --top=6")
"""What the terminal shows. The run is in the folder gpt2."""
LINES, COLUMNS = 24, 100
"""Size of the terminal."""
WIDTH, HEIGHT, SCALE = 960, 800, 1.5
"""Size of the browser's window in CSS pixels, and pixels of the picture in each of them."""
COLOURS = 256
"""Colours of a picture of the page: few, so that the file is small."""
SVG = """<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, "DejaVu Sans Mono", Consolas, monospace }}
{styles}
</style>
<defs>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""The picture of a terminal, as `Console.export_svg` fills it in. Its fonts are those of the reader."""


def unpacked(bundle: Path, place: Path) -> None:
    """Unpack the run of a bundle into `place`/gpt2."""
    words = ["bundle", "unpack", str(bundle), f"--to={place / 'gpt2'}"]
    subprocess.run([sys.executable, "-m", "benchmarker", *words], check=True, capture_output=True)


def printed(command: str, place: Path) -> str:
    """Return what a command of the tool prints in the folder `place` on a terminal, with its colours."""
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (LINES, COLUMNS))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarker", *shlex.split(command)],
        cwd=place,
        env={**env, "TERM": "xterm-256color", "PYTHONUTF8": "1"},
        stdout=child,
        stderr=subprocess.PIPE,
    )
    os.close(child)
    text = b"".join(_read(parent)).decode()
    os.close(parent)
    _, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"`benchmarker {command}` failed: {errors.decode()}")
    return text.replace("\r\n", "\n")


def _read(terminal: int) -> Iterator[bytes]:
    try:
        while part := os.read(terminal, 65536):
            yield part
    except OSError:  # the terminal is gone with the process
        return


def terminal(session: Sequence[tuple[str, str]]) -> str:
    """Return an SVG of a terminal with commands and what they printed."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    for number, (command, text) in enumerate(session):
        if number:
            console.print()
        console.print(Text(f"$ benchmarker {command}", style="bold"))
        console.print(Text.from_ansi(text.rstrip()), soft_wrap=True)
    return console.export_svg(title="", code_format=SVG, font_aspect_ratio=0.602, unique_id="t")


def report(place: Path) -> Iterator[tuple[str, bytes]]:
    """Yield names and PNG files of a report in the colours of each theme: its answer, with the icicle below."""
    command = [sys.executable, "-m", "benchmarker", "report", "gpt2", "--by=framework", "-o", "report.html"]
    subprocess.run(command, cwd=place, check=True, capture_output=True)
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=sandbox)
        for theme in ("light", "dark"):
            size = ViewportSize(width=WIDTH, height=HEIGHT)
            page = browser.new_page(viewport=size, color_scheme=theme, device_scale_factor=SCALE)
            page.goto((place / "report.html").as_uri())
            page.wait_for_selector("html[data-drawn]", state="attached")
            ratios, icicle = page.locator("#plot-ratios"), page.locator(".plot[id^=plot-icicle]").first
            parts = [page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": _below(ratios)})]
            icicle.scroll_into_view_if_needed()
            page.wait_for_selector(".plot[id^=plot-icicle][data-drawn]")
            parts.append(icicle.screenshot())
            yield f"report-{theme}.png", joined(parts)
        browser.close()


def _below(part: Locator) -> float:
    """Return where a part of a page ends."""
    box = part.bounding_box()
    assert box
    return box["y"] + box["height"]


def joined(parts: Sequence[bytes]) -> bytes:
    """Return a PNG with pictures one below the other, in few colours; narrower ones are in the middle."""
    images = [Image.open(io.BytesIO(part)).convert("RGB") for part in parts]
    gap = round(16 * SCALE)
    width, height = max(each.width for each in images), sum(each.height + gap for each in images)
    whole = Image.new("RGB", (width, height), images[-1].getpixel((0, 0)))
    at = 0
    for image in images:
        whole.paste(image, ((width - image.width) // 2, at))
        at += image.height + gap
    file = io.BytesIO()
    whole.quantize(COLOURS, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


def main(bundle: Path = BUNDLE, folder: Path = PICTURES) -> None:
    """Write all pictures."""
    folder.mkdir(exist_ok=True)
    with TemporaryDirectory() as temporary:
        place = Path(temporary)
        unpacked(bundle, place)
        svg = terminal([(command, printed(command, place)) for command in COMMANDS])
        (folder / "terminal.svg").write_text(svg, encoding="utf-8")
        for name, png in report(place):
            (folder / name).write_bytes(png)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
