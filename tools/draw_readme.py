#!/usr/bin/env python3
"""Draws docs/images/readme.svg, the README's picture, of the figures in docs/images/readme.json.

usage: tools/draw_readme.py                       draws
       tools/draw_readme.py --measure EVENKEEL    first runs both commands of the figures with that binary, seconds

Two panels, load and peak memory of each rank, each with two bars a rank: before balancing above, after it below. All
colours are readable on white and on dark.
"""

import argparse
import json
import shlex
import subprocess
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs/images/readme.json"
PICTURE = FIGURES.with_suffix(".svg")

BEFORE, AFTER, INK = "#d9692b", "#2f81d8", "#717b87"
WIDTH, PANEL, BARS_LEFT, BARS = 900, 440, 56, 320  # BARS: the length of the longest bar
TOP, ROW, BAR = 104, 33, 12
KEPT = ("batch", "layer", "budget")  # of what `run --json` says of the whole run
MIB = 1 << 20


def measure(figures, binary):
    for side in ("before", "after"):
        words = shlex.split(figures[side]["command"])
        done = subprocess.run([binary, *words[1:]], cwd=ROOT, capture_output=True, text=True, check=True)
        said = json.loads(done.stdout)
        (planner,) = said["planners"]
        figures[side] |= {key: said[key] for key in KEPT}
        figures[side] |= {key: planner[key] for key in ("planner", "rank_loads", "peak_bytes")}
    return figures


def text(x, y, words, size=13, anchor="start", weight="normal", fill=INK):
    look = f'font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{fill}"'
    return f'<text x="{x:g}" y="{y:g}" {look}>{escape(words)}</text>'


def bar(x, y, length, fill):
    return f'<rect x="{x:g}" y="{y:g}" width="{length:.1f}" height="{BAR}" rx="2" fill="{fill}"/>'


def panel(left, title, before, after, mark, mark_name, show):
    """Bars of both sides for each rank, and a dashed line at `mark`."""
    x, bottom = left + BARS_LEFT, TOP + ROW * len(before)
    scale = BARS / max(*before, *after)
    yield text(left, 62, title, 15, weight="bold")
    at = x + scale * mark
    for rank, values in enumerate(zip(before, after, strict=True)):
        y = TOP + ROW * rank
        yield text(x - 10, y + BAR + 5, f"rank {rank}", 12, anchor="end")
        for side, (value, fill) in enumerate(zip(values, (BEFORE, AFTER), strict=True)):
            end, base = x + scale * value, y + side * (BAR + 1)
            yield bar(x, base, scale * value, fill)
            words = show(value)
            crossed = end < at < end + 8 + 7 * len(words)  # the line would run through the number
            yield text((at if crossed else end) + 5, base + 10.5, words, 11)
    line = f'x1="{at:.1f}" y1="{TOP - 8}" x2="{at:.1f}" y2="{bottom}" stroke="{INK}" stroke-width="1.5"'
    yield f'<line {line} stroke-dasharray="4 3"/>'
    yield text(at, TOP - 14, mark_name, 12, anchor="middle")


def draw(figures):
    """The whole picture as SVG."""
    before, after = figures["before"], figures["after"]
    loads = before["rank_loads"], after["rank_loads"]
    peaks = [[size / MIB for size in side["peak_bytes"]] for side in (before, after)]
    mean, budget = sum(loads[0]) / len(loads[0]), after["budget"] / MIB
    height = TOP + ROW * len(loads[0]) + 12
    worst = [max(each) / mean for each in loads]
    legend = (
        (0, BEFORE, "upper bar: plain expert parallelism, no budget"),
        (WIDTH - PANEL, AFTER, f"lower bar: balanced, in a budget of {budget:g} MiB a rank"),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" role="img">',
        "<title>Load and peak memory of each rank, before and after balancing</title>",
        f"<desc>Worst rank's load: {worst[0]:.2f} times the mean before, {worst[1]:.2f} after. Worst rank's peak: "
        f"{max(peaks[0]):.1f} MiB before, {max(peaks[1]):.1f} MiB after.</desc>",
    ]
    for x, fill, words in legend:
        parts += [bar(x + 2, 14, 16, fill), text(x + 26, 25, words)]
    title = f"Load (assignments): worst rank {worst[0]:.2f}x the mean, then {worst[1]:.2f}x"
    parts += panel(0, title, *loads, mean, "mean", lambda load: f"{load:,}")
    title = f"Peak memory: worst rank {max(peaks[0]):.1f} MiB, then {max(peaks[1]):.1f} MiB"
    parts += panel(WIDTH - PANEL, title, *peaks, budget, "budget", lambda peak: f"{peak:.1f}")
    return "\n".join([*parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", metavar="EVENKEEL", type=Path)
    options = parser.parse_args()
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    if options.measure:
        figures = measure(figures, options.measure.resolve())
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    PICTURE.write_text(draw(figures), encoding="utf-8")


if __name__ == "__main__":
    main()
