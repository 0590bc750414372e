"""CPU of a program nobody uses."""

from __future__ import annotations

import argparse
import asyncio
import time

from bench.clients import AdminPage, close_all, open_pages
from bench.command import Bench, add_program_argument
from bench.interleave import progress
from bench.program import Program, cpu_share
from bench.results import Findings, Row
from bench.stats import Target

NAME = "idle"
HELP = "CPU of the whole program without a page, with one that is open and idle, and with the admin page open"

_TARGET = Target(at_most=1.5)
_ADMIN_TARGET = Target(at_most=2.0)
"""What the admin page may add."""
_SETTLE_S = 5.0
_QUIET_AFTER_S = 95.0
"""The program counts a page that gave no sign for 90 s as left alone."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How long to look."""
    parser.set_defaults(repeats=1)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each look (default: %(default)s)")
    add_program_argument(parser)
    parser.add_argument("--short", action="store_true", help="leave out the page that was left alone for 95 s")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    without: list[float] = []
    opened: list[float] = []
    left: list[float] = []
    admin: list[float] = []
    for _ in range(bench.n_repeats):
        with Program(bench.model, {"n_threads": bench.n_threads}, packaged=bench.program) as program:
            program.wait_ready()
            progress("no page is open")
            without.append(await _percent(program, bench.options.seconds))
            progress("the admin page is open")
            page = await AdminPage(program.url, program.owners_link("/")).open()
            admin.append(await _percent(program, bench.options.seconds))
            await page.close()
            pages = await open_pages(program.url, 1)
            progress("a page was just opened")
            opened.append(await _percent(program, bench.options.seconds))
            if not bench.options.short:
                progress("the page is left alone")
                await asyncio.sleep(max(0.0, _QUIET_AFTER_S - bench.options.seconds))
                left.append(await _percent(program, bench.options.seconds))
            await close_all(pages)
    rows = [
        Row.figure("no page open", "% of a core", without, _TARGET),
        Row.figure(
            "the admin page, on top of that",
            "% of a core",
            [max(0.0, with_it - alone) for with_it, alone in zip(admin, without, strict=True)],
            _ADMIN_TARGET,
        ),
        Row.figure("a page just opened", "% of a core", opened),
    ]
    if left:
        rows.append(Row.figure("a page left alone for 95 s", "% of a core", left))
    return Findings(tuple(rows))


async def _percent(program: Program, seconds: float) -> float:
    await asyncio.sleep(_SETTLE_S)
    before_s, began_s = program.cpu_s(), time.perf_counter()
    await asyncio.sleep(seconds)
    return 100 * cpu_share(before_s, program.cpu_s(), time.perf_counter() - began_s)
