"""`python -m bench NAME`: one sub-command a measurement, each a module of this package."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from bench import (
    courtesy,
    cpu,
    frozen,
    gaps,
    growth,
    hostile,
    idle,
    memory,
    order,
    page,
    page_speed,
    promise,
    report,
    reuse,
    self_test,
    shape,
    spin,
    start,
    streams,
    window,
)
from bench.command import Measurement, add_common_arguments, measure
from bench.peers import against, burst, compare, decode, paste, step, success

MEASUREMENTS: Final[tuple[Measurement, ...]] = (
    streams,
    page,
    page_speed,
    promise,
    self_test,
    start,
    frozen,
    memory,
    growth,
    hostile,
    idle,
    window,
    reuse,
    order,
    gaps,
    cpu,
    courtesy,
    spin,
    decode,
    against,
    burst,
    paste,
    success,
    step,
)


def main(arguments: Sequence[str]) -> int:
    """Run one sub-command."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures the office chat appliance.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="NAME")
    for measurement in MEASUREMENTS:
        one = commands.add_parser(measurement.NAME, help=measurement.HELP, description=measurement.HELP)
        add_common_arguments(one)
        measurement.add_arguments(one)
    for tool in (shape, report, compare):
        tool.add_arguments(commands.add_parser(tool.NAME, help=tool.HELP, description=tool.HELP))
    options = parser.parse_args(arguments)
    for measurement in MEASUREMENTS:
        if options.command == measurement.NAME:
            measure(measurement, options, f"python -m bench {shlex.join(repeatable(arguments))}")
    if options.command == shape.NAME:
        for kind in options.types:
            print(shape.shape_file(kind, options.cache))
    elif options.command == report.NAME:
        report.write(options.results, options.target)
    elif options.command == compare.NAME:
        compare.run(options, main)
    return 0


def repeatable(arguments: Sequence[str]) -> list[str]:
    """The arguments without what belongs to one run or one machine: seed, repeats, folders, and where a model lies."""
    kept: list[str] = []
    words = iter(word for argument in arguments for word in _split(argument))
    for word in words:
        if word in ("--seed", "--results", "--cache", "--repeats"):
            next(words)
        elif word == "--more":
            continue
        elif kept and kept[-1] in ("--model", "--their-model", "--program", "--one-file"):
            kept.append(Path(word).name)
        else:
            kept.append(word)
    return kept


def _split(argument: str) -> list[str]:
    """`--option=value` in two."""
    return argument.split("=", 1) if argument.startswith("--") else [argument]


def _leave(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM: by way of the context managers, so that no program or engine is left behind."""
    raise SystemExit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(main(sys.argv[1:]))
