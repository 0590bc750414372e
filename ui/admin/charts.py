"""Line charts as SVG, drawn here: Gradio's own plots evaluate text in the browser, which our Content-Security-Policy
forbids, and a chart of 360 points is nothing but a few lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

_WIDTH, _HEIGHT = 480, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 38, 6, 8, 20


@dataclass(frozen=True)
class Line:
    """One line of a chart. None: nothing was measured then."""

    name: str
    values: Sequence[float | None]


def chart_html(title: str, times_s: Sequence[float], lines: Sequence[Line], now: str) -> str:
    """A figure with its legend. `times_s`: Unix times of the values, oldest first; `now` stands at the right end."""
    top = _round_up(max((value for line in lines for value in line.values if value is not None), default=0.0))
    first_s, last_s = times_s[0], times_s[-1]

    def x(at_s: float) -> float:
        share = (at_s - first_s) / (last_s - first_s) if last_s > first_s else 1.0
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for share in (0.0, 0.5, 1.0):
        at = y(top * share)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_number(top * share)}</text>')
    for at_s, anchor in ((first_s, "start"), ((first_s + last_s) / 2, "middle"), (last_s, "end")):
        label = now if at_s == last_s else _clock(at_s)
        parts.append(f'<text x="{x(at_s):.1f}" y="{_HEIGHT - 4}" text-anchor="{anchor}">{escape(label)}</text>')
    for number, line in enumerate(lines):
        points = [(x(t), y(v)) if v is not None else None for t, v in zip(times_s, line.values, strict=True)]
        parts.append(f'<path class="line line-{number}" d="{_path(points)}"/>')
    legend = "".join(
        f'<span class="key key-{number}">{escape(line.name)} <b>{_latest(line.values)}</b></span>'
        for number, line in enumerate(lines)
    )
    summary = escape(f"{title}: " + ", ".join(f"{line.name} {_latest(line.values)}" for line in lines))
    return (
        f'<figure class="chart"><figcaption><span class="name">{escape(title)}</span>{legend}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{summary}">{"".join(parts)}</svg></figure>'
    )


def _path(points: Sequence[tuple[float, float] | None]) -> str:
    """Joined where there are neighbours; a point that stands alone is a dot."""
    parts, pen_down = [], False
    for point in points:
        if point is not None:
            parts.append(f"{'L' if pen_down else 'M'}{point[0]:.1f} {point[1]:.1f}{'' if pen_down else 'h.1'}")
        pen_down = point is not None
    return "".join(parts)


def _round_up(value: float) -> float:
    """1, 2 or 5 times a power of ten, not below `value`."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 2, 5) if value <= step * power), 10 * power)


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _latest(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _number(known[-1]) if known else "–"


def _clock(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).astimezone().strftime("%H:%M")
