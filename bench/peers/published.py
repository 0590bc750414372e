"""The tables published for the design this project follows, beside what was measured here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bench.results import Result, Row
from bench.table import show


@dataclass(frozen=True)
class Published:
    """One figure somebody else measured, and where ours is: the beginning of a result's name, and the row in it."""

    what: str
    theirs: str
    machine: str
    result: str = ""
    row: str = ""
    is_ratio: bool = False
    """Theirs compares two ways to answer, and so does our row."""
    remark: str = ""


_I5: Final = "6-core i5-10400"
_N100: Final = "4-core N100, 50 users"
_FOUR: Final = "4 cores"
_TUNED: Final = "llama-server-qwen2.5-0.5b-shape-q4_k_m"
_LINE: Final = "against-closed-50-api-llama-one-slot"


def _users() -> tuple[Published, ...]:
    figures = {5: (89, 280, 100.0), 10: (103, 520, 100.0), 20: (118, 980, 99.7), 30: (142, 1120, 95.3)}
    rows: list[Published] = []
    for n, (ttft_ms, per_min, answered) in figures.items():
        ours = f"against-closed-{n}-api-"
        rows += [
            Published(f"{n} users: first token", f"{ttft_ms} ms", _I5, ours, "ttft p50"),
            Published(f"{n} users: requests a minute", f"{per_min:,}", _I5, ours, "answers"),
            Published(f"{n} users: success", f"{answered:g} %", _I5, ours, "answered"),
        ]
    return tuple(rows)


PUBLISHED: Final = (
    *_users(),
    Published("at once, one at a time / scheduled", "at most 3 / at least 20", _N100, remark="32 slots, 64 at most"),
    Published("p90, scheduled / one at a time", "0.6 s / 1.2 s", _N100, _LINE, "answer's end p90", is_ratio=True),
    Published("requests/s, scheduled / one at a time", "5.3 / 1.8", _N100, _LINE, "answers", is_ratio=True),
    Published("CPU peak", "98 → 75 %", _N100, remark="not measured: a batch is meant to use the cores it is given"),
    Published("errors", "23 → 2 %", _N100, _LINE, "answered", remark="ours: answered, %"),
    Published("32 streams: first token", "180 ms", _FOUR, "against-closed-32-api-", "ttft p50"),
    Published(
        "beyond 40 users", "add a machine", _FOUR, "against-closed-48-api-", "answered", remark="48 users: answered, %"
    ),
    Published("affinity and real-time class: p99", "510 → 220 ms", _FOUR, "cpu-", "realtime: gap p99", is_ratio=True),
    Published("conversations of many turns", "40 % faster", "–", "reuse-turns", "whole conversation", is_ratio=True),
    Published("start", "2.3 s", "–", "start-q", "start to answering page"),
    Published(
        "JSON, log and HTTP",
        "30 ms a request",
        "–",
        "against-closed-30-api-",
        "CPU outside the engine",
        remark="CPU time",
    ),
)


def table(results: Mapping[str, Result]) -> str:
    """As Markdown; what was not measured says so."""
    lines = ["| what | theirs | on | ours | |", "| --- | --- | --- | --- | --- |"]
    for published in PUBLISHED:
        found = _row(published, results)
        ours = "not measured" if published.result else "–"
        if found is not None:
            ours = f"{show(found.ratio)} x" if published.is_ratio else f"{show(found.got)} {found.unit}"
        lines.append(f"| {published.what} | {published.theirs} | {published.machine} | {ours} | {published.remark} |")
    return "\n".join(lines)


def _row(published: Published, results: Mapping[str, Result]) -> Row | None:
    """Of the first result whose name begins as it should; that of our tuned file, where there is one."""
    if not published.result:
        return None
    names = sorted((name for name in results if name.startswith(published.result)), key=lambda name: _TUNED not in name)
    rows = (row for name in names for row in results[name].rows if row.what == published.row)
    return next((row for row in rows if row.ratio is not None or not published.is_ratio), None)
