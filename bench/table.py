"""Rows of results as a table: aligned for the terminal, or Markdown."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from bench.results import Row
from bench.stats import Spread

HEAD = ("what", "unit", "got", "against", "its figure", "ratio", "target", "met")
_MET = {True: "yes", False: "NO", None: ""}


def cells(row: Row) -> tuple[str, ...]:
    """A row as text, in the order of HEAD."""
    return (
        row.what,
        row.unit,
        show(row.got),
        row.against,
        show(row.base),
        show(row.ratio),
        str(row.target or ""),
        _MET[row.is_met],
    )


def show(spread: Spread | None) -> str:
    """Median, and lowest and highest where they differ; three digits are more than this can tell."""
    if spread is None:
        return ""
    median, low, high = (number(value) for value in (spread.median, spread.low, spread.high))
    return median if low == high else f"{median} ({low}-{high})"


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    n_decimals = 0
    while abs(value) * 10**n_decimals < 100 and n_decimals < 6:
        n_decimals += 1
    return f"{value:.{n_decimals}f}"


def for_terminal(rows: Sequence[Row]) -> str:
    """Columns that are empty throughout are left out."""
    lines = [HEAD, *(cells(row) for row in rows)]
    kept = [i for i in range(len(HEAD)) if any(line[i] for line in lines[1:])]
    widths = {i: max(_width(line[i]) for line in lines) for i in kept}
    return "\n".join("  ".join(_padded(line[i], widths[i]) for i in kept).rstrip() for line in lines)


def for_markdown(rows: Sequence[Row]) -> str:
    """The same as a Markdown table."""
    lines = [HEAD, *(cells(row) for row in rows)]
    kept = [i for i in range(len(HEAD)) if any(line[i] for line in lines[1:])]
    texts = ["| " + " | ".join(line[i].replace("|", "\\|") for i in kept) + " |" for line in lines]
    return "\n".join([texts[0], "|" + " --- |" * len(kept), *texts[1:]])


def _width(text: str) -> int:
    """Columns on a terminal: a Chinese character takes two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))
