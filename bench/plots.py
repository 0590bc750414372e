"""The plots of docs/performance.md, drawn from results. Small SVG files whose text stays text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.peers.step import PARTS
from bench.results import Result, Row
from bench.stats import Spread

_CLOSED: Final = re.compile(r"against-closed-(\d+)-api-llama-server-")
_STREAMS: Final = re.compile(r"(\d+) streams?: (.*)")
_PANELS: Final = (
    ("speed", "tokens/s"),
    ("ttft p50", "first word, median, ms"),
    ("gap p99", "gap in an answer, p99, ms"),
)
_COLOURS: Final = ("#1f6feb", "#d1242f", "#8250df", "#9a6700", "#57606a")


def draw(results: Mapping[str, Result], folder: Path) -> list[Path]:
    """Draw what there are results for; returns the files."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "office-chat", "font.size": 9, "axes.grid": True})
    drawn = []
    for name, plot in (("users", _users), ("step", _step)):
        figure = plot(results)
        if figure is not None:
            path = folder / f"performance-{name}.svg"
            figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
            drawn.append(path)
    return drawn


def by_users(results: Mapping[str, Result], what: str) -> dict[str, list[tuple[int, Spread]]]:
    """(users, figure) of every side that lived through closed loops, by a name for the legend, in order of users."""
    lines: dict[str, dict[int, Spread]] = defaultdict(dict)
    for name, result in results.items():
        if (found := _CLOSED.match(name)) is None:
            continue
        row = next((row for row in result.rows if row.what == what and row.base is not None), None)
        if row is not None and row.base is not None:
            ours_is_other = row.against != "llama-server"
            lines["ours, tuned file" if ours_is_other else "ours"][int(found[1])] = row.got
            lines[row.against][int(found[1])] = row.base
    return {label: sorted(points.items()) for label, points in sorted(lines.items())}


def step_parts(rows: Sequence[Row]) -> dict[int, dict[str, float]]:
    """ms of every part of a step, by number of streams."""
    parts: dict[int, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if (found := _STREAMS.match(row.what)) and found[2] in PARTS:
            parts[int(found[1])][found[2]] = row.got.median
    return dict(sorted(parts.items()))


def _users(results: Mapping[str, Result]) -> Any:
    if not by_users(results, "speed"):
        return None
    figure, axes = _figure(len(_PANELS))
    for axis, (what, title) in zip(axes, _PANELS, strict=True):
        for colour, (label, points) in zip(_COLOURS, by_users(results, what).items(), strict=False):
            users = [n for n, _ in points]
            axis.plot(users, [spread.median for _, spread in points], "o-", ms=3, lw=1.2, label=label, color=colour)
            low, high = [s.low for _, s in points], [s.high for _, s in points]
            axis.fill_between(users, low, high, alpha=0.15, lw=0, color=colour)
        axis.set_title(title)
        axis.set_xlabel("people")
        axis.set_ylim(bottom=0)
    axes[0].legend(fontsize=7)
    return figure


def _step(results: Mapping[str, Result]) -> Any:
    result = next((result for name, result in results.items() if name.startswith("step-")), None)
    if result is None:
        return None
    parts = step_parts(result.rows)
    figure, (axis,) = _figure(1)
    labels = [f"{n} streams" if n > 1 else "1 stream" for n in parts]
    left = [0.0] * len(parts)
    for part, colour in zip(PARTS, _COLOURS, strict=True):
        shares = [100 * times[part] / sum(times.values()) for times in parts.values()]
        axis.barh(labels, shares, left=left, label=part, color=colour)
        left = [a + b for a, b in zip(left, shares, strict=True)]
    axis.set_xlabel("% of a step")
    axis.set_xlim(80, 100)
    axis.invert_yaxis()
    axis.legend(fontsize=7, loc="lower left")
    return figure


def _figure(n_panels: int) -> tuple[Any, Sequence[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * n_panels + 0.6 * (n_panels == 1), 2.6), layout="constrained")
    axes = figure.subplots(1, n_panels, squeeze=False)[0]
    return figure, list(axes)
