"""docs/performance.md, from the newest results."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.results import RESULTS, Result, newest
from bench.table import for_markdown

NAME = "report"
HELP = "write docs/performance.md from the newest results"

PAGE = RESULTS.parent.parent / "docs" / "performance.md"
# What a reader wants to know first comes first; names of results begin with these.
_ORDER = ("streams", "page", "start", "memory", "growth", "idle", "reuse", "order", "gaps", "window", "cpu", "courtesy")
_INTRODUCTION = """\
# Performance

Written by `python -m bench report` from what `python -m bench` measured; the command under each heading repeats it,
with new questions. Every figure is the median of interleaved repeats, with the lowest and the highest in brackets.
Compare ratios: the figures themselves belong to the machine. A ratio is ours divided by what it is compared with, taken
in each repeat, so that what the machine did to both cancels out.

Where a model is named `qwen2.5-0.5b-shape`, it has that model's exact shape and tokenizer with random weights: speed
depends on shape and quantisation, not on what the weights say. `ttft` is the time from sending to the first visible
text. Clients and program share the processor here.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where to read and write."""
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON files")
    parser.add_argument("--target", type=Path, default=PAGE, help="the page to write")


def write(results: Path, target: Path) -> None:
    """Render the newest result of every measurement."""
    found = sorted(newest(results).values(), key=_rank)
    if not found:
        raise SystemExit(f"{results.name}/ holds no results yet: run a measurement first")
    target.write_text(render(found), encoding="utf-8")
    print(f"{target.name}: {len(found)} measurements")


def render(results: Sequence[Result]) -> str:
    """The whole page; without results it says so."""
    if not results:
        return f"{_INTRODUCTION}\nNothing has been measured yet.\n"
    return "\n".join([_INTRODUCTION, _machines(results), *(_section(result) for result in results)])


def _machines(results: Sequence[Result]) -> str:
    """Each machine once; mostly there is one."""
    distinct = list(dict.fromkeys(tuple(result.machine.items()) for result in results))
    lines = ["## Machine", ""]
    for machine in distinct:
        lines += [f"* {name}: {value}" for name, value in machine] + [""]
    return "\n".join(lines)


def _section(result: Result) -> str:
    spoiled = result.load_before > 0.7
    lines = [
        f"## {result.name}",
        "",
        f"{result.title[0].upper()}{result.title[1:]}.",
        "",
        f"`{result.again}`",
        "",
        f"{result.model}, {result.n_repeats} repeats, {result.began[:10]}, seed {result.seed}.",
        *(
            ["", f"**Something else was at work (load {result.load_before:.1f}): read nothing off this.**"]
            if spoiled
            else []
        ),
        "",
        for_markdown(result.rows),
        "",
        *(f"{note}\n" for note in result.notes),
    ]
    return "\n".join(lines)


def _rank(result: Result) -> tuple[int, str]:
    place = next((i for i, name in enumerate(_ORDER) if result.name.startswith(name)), len(_ORDER))
    return place, result.name
