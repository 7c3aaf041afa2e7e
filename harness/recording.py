"""Records `everstep demo` as an animated SVG for the README: `python -m harness.recording` writes docs/assets/demo.svg.

The text, its colours and the pauses are those of a real demo, which runs in a temporary folder. The picture is a window that scrolls as a
terminal does, by two CSS animations: one moves the lines up, one moves a cover down that hides the lines that were not printed yet. Without
animations (reduced motion, a printout) it shows the first lines, up to the resumed run. A test compares its text with a demo.
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SVG = Path(__file__).parents[1] / "docs" / "assets" / "demo.svg"
PROMPT = "$ everstep demo"
COLUMNS, ROWS = 84, 29
WIDTH, HEIGHT = 8.0, 18  # pixels of a character
MARGIN, BAR = 16, 32
REST = 6.0  # seconds that the end is shown
_COLOURS = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y"}
_STYLED = re.compile(r"\x1b\[(\d+)m(.*?)\x1b\[0m")
_NOISE = (
    (r"(Process|kill -9) \d+", r"\1 N"),
    (r"\b\d+(\.\d+)? (s|ms|KB|B|times)\b", r"N \2"),
    (r"\b\d+% of that size", "N% of that size"),
    (r"^.*\beverstep'? (\w.*) -s .*$", r"everstep \1"),
    (r" +", " "),
)


def record() -> list[tuple[float, str]]:
    """Run a demo; return its lines with the seconds at which they were printed."""
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        command = [sys.executable, "-m", "everstep", "demo", "--color", "always"]
        demo = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, encoding="utf-8")  # noqa: S603 -- our own module
        assert demo.stdout is not None
        began = time.monotonic()
        lines = [(time.monotonic() - began, line.rstrip("\n")) for line in demo.stdout]
        if demo.wait() != 0:
            sys.exit(f"the demo ended with {demo.returncode}")
    return lines


def draw(lines: list[tuple[float, str]]) -> str:
    """Return the SVG of a recording."""
    shown = [(0.0, PROMPT), *((at + 1, line) for at, line in lines)]
    width, height = int(COLUMNS * WIDTH + 2 * MARGIN), BAR + ROWS * HEIGHT + MARGIN
    total = shown[-1][0] + REST
    texts = "\n".join(_text(i, line) for i, (_, line) in enumerate(shown) if line)
    moments = [(round(100 * at / total, 2), i) for i, (at, _) in enumerate(shown)]
    scroll = " ".join(f"{at}%{{transform:translateY({-max(0, i + 1 - ROWS) * HEIGHT}px)}}" for at, i in moments if i + 1 >= ROWS)
    cover = " ".join(f"{at}%{{transform:translateY({(i + 1) * HEIGHT}px);opacity:1}}" for at, i in moments)
    last = f"translateY({-max(0, len(shown) - ROWS) * HEIGHT}px)"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">
<title>everstep demo: an agent is killed in the middle of a step, a new process resumes it, and a fork decides differently</title>
<style>
text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;fill:#c9d1d9}}
.b{{font-weight:bold;fill:#f0f6fc}} .d{{fill:#8b949e}} .r{{fill:#ff7b72}} .g{{fill:#56d364}} .y{{fill:#e3b341}}
@keyframes scroll{{0%{{transform:none}} {scroll} 100%{{transform:{last}}}}}
@keyframes cover{{{cover} 100%{{transform:translateY({len(shown) * HEIGHT}px);opacity:1}}}}
@media (prefers-reduced-motion:no-preference){{
#lines{{animation:scroll {total:.1f}s step-end infinite}} #cover{{animation:cover {total:.1f}s step-end infinite}}
}}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>
<circle cx="20" cy="16" r="5" fill="#ff5f57"/><circle cx="38" cy="16" r="5" fill="#febc2e"/><circle cx="56" cy="16" r="5" fill="#28c840"/>
<svg x="0" y="{BAR}" width="{width}" height="{ROWS * HEIGHT}">
<g id="lines">
{texts}
<rect id="cover" opacity="0" width="{width}" height="{len(shown) * HEIGHT}" fill="#0d1117"/>
</g>
</svg>
</svg>
"""


def _text(row: int, line: str) -> str:
    """Draw a line. Every part has its own position: neither spaces nor a character of another width move the next part."""
    parts, column, end = [], 0, 0
    for match in (*_STYLED.finditer(line), None):
        plain = line[end : match.start() if match else None]
        for text, style in ((plain, ""), (match[2], _COLOURS.get(match[1], "")) if match else ("", "")):
            for word in re.finditer(r"\S+(?: \S+)*", text):
                attribute = f' class="{style}"' if style else ""
                x = MARGIN + WIDTH * (column + word.start())
                parts.append(f'<tspan x="{x:g}"{attribute}>{html.escape(word[0], quote=False)}</tspan>')
            column += len(text)
        end = match.end() if match else end
    return f'<text y="{row * HEIGHT + 13}">{"".join(parts)}</text>'


def lines_of(svg: str) -> list[str]:
    """Return the text of a picture, without empty lines."""
    rows = re.findall(r"<text [^>]*>(.*)</text>", svg)
    return [html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"</tspan><tspan", "</tspan> <tspan", row))) for row in rows]


def steady(text: str) -> str:
    """Return a line of the demo without the parts that differ from one demo to the next."""
    for pattern, instead in _NOISE:
        text = re.sub(pattern, instead, text)
    return text.strip()


if __name__ == "__main__":
    SVG.parent.mkdir(exist_ok=True)
    SVG.write_text(draw(record()), encoding="utf-8")
    sys.stdout.write(f"{SVG}: {SVG.stat().st_size // 1024} KB\n")
