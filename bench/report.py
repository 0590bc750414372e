"""docs/performance.md, from the newest results."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench import plots
from bench.peers import published
from bench.results import RESULTS, Result, newest
from bench.table import for_markdown, show

NAME = "report"
HELP = "write docs/performance.md from the newest results"

PAGE = RESULTS.parent.parent / "docs" / "performance.md"
# What a reader wants to know first comes first; names of results begin with these.
_ORDER = (
    *("decode", "against", "burst", "paste", "page", "success", "step", "streams", "start", "memory", "growth", "idle"),
    *("reuse", "order", "gaps", "promise", "page-speed", "self-test", "frozen", "window", "cpu", "courtesy"),
)
_NOTES = RESULTS.parent / "notes.md"
"""Written by hand: what was not reached, what was tried, where the time goes."""
_INTRODUCTION = """\
# Performance

Written by `python -m bench report` from what `python -m bench` measured; the command under each heading repeats it,
with new questions. Every figure is the median of interleaved repeats, with the lowest and the highest in brackets.
Compare ratios: the figures themselves belong to the machine. A ratio is ours divided by what it is compared with, taken
in each repeat, so that what the machine did to both cancels out.

Where a model is named `qwen2.5-0.5b-shape`, it has that model's exact shape and tokenizer with random weights: speed
depends on shape and quantisation, not on what the weights say. `ttft` is the time from sending to the first visible
text. Clients and program share the processor here.

`make bench` runs all that is compared with other programs: llama-server and llama-batched-bench compiled from
llama-cpp-python's own source archive with our wheel's CPU flags, its example server, and its `Llama` object one at a
time. Both sides get the same file (unless a table says otherwise), slots, room, threads and questions.
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
    drawn = plots.draw({result.name: result for result in found}, target.parent)
    target.write_text(render(found, [path.name for path in drawn]), encoding="utf-8")
    print(f"{target.name}: {len(found)} measurements, {len(drawn)} plots")


def render(results: Sequence[Result], plot_names: Sequence[str] = ()) -> str:
    """The whole page; without results it says so."""
    if not results:
        return f"{_INTRODUCTION}\nNothing has been measured yet.\n"
    pictures = [f"![{name.removesuffix('.svg')}]({name})\n" for name in plot_names]
    notes = [_NOTES.read_text(encoding="utf-8")] if _NOTES.is_file() else []
    tables = [_targets(results), _published(results), *(_section(result) for result in results)]
    return "\n".join([_INTRODUCTION, _machines(results), *pictures, *notes, *tables])


def _targets(results: Sequence[Result]) -> str:
    """All that has a target, in one table."""
    lines = [
        "## What is to be reached",
        "",
        "| what | against | ratio, or figure | target | met | repeats |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for result in results:
        for row in result.rows:
            if row.target is None or (row.what == "answered" and row.is_met):
                continue
            got = show(row.ratio) if row.ratio else f"{show(row.got)} {row.unit}"
            met = "yes" if row.is_met else "**no**"
            name = f"[{result.name}](#{result.name.replace('.', '')}): {row.what}"
            lines.append(f"| {name} | {row.against} | {got} | {row.target} | {met} | {result.n_repeats} |")
    return "\n".join([*lines, ""])


def _published(results: Sequence[Result]) -> str:
    head = (
        "## Published figures\n\nOf the design this project follows, on the machines named; ours on the machine above, "
        "with a model of their model's shape. Theirs cannot be repeated here: read them as what others saw.\n"
    )
    return f"{head}\n{published.table({result.name: result for result in results})}\n"


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
