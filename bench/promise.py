"""What the page promises those who wait, against what then happens."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.clients import PageClient, close_all, open_pages
from bench.command import Bench
from bench.interleave import progress
from bench.program import Program
from bench.questions import Questions
from bench.results import Findings, Row
from bench.stats import Target, percentile

NAME = "promise"
HELP = (
    'the wait the page tells ("3rd, about 25 s") against the wait that follows, in a burst and while people keep coming'
)

_TARGET = Target(at_most=30)
_LOOK_S = 1.0
"""How often a waiting page asks for its place."""
_SHORTEST_S = 2.0
"""A wait shorter than this is no wait: a second more or less is most of it."""
_COMING = 1.1
"""People who keep coming, as a share of what the PC answers: a line forms and stays."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many people, how many are answered at once."""
    parser.add_argument("--people", type=int, default=20, help="in each round (default: %(default)s)")
    parser.add_argument("--slots", type=int, default=4, help="answers written at once (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=96, help="longest answer (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


@dataclass(frozen=True)
class _Round:
    """Everybody's promises of one round, each with what then happened, in seconds."""

    first: list[tuple[float, float]]
    """What each person was told first."""
    every: list[tuple[float, float]]
    took_s: float
    """Until the last answer was over."""


async def _run(bench: Bench) -> Findings:
    options, rng = bench.options, random.Random(bench.seed)
    settings = {
        "max_batch_size": options.slots,
        "look_ahead": 0,
        "queue_size": options.people,
        "max_answer_tokens": options.tokens,
        "n_threads": bench.n_threads,
        "saved_only_wait_s": 0,  # nobody is sent away
        "busy_wait_s": 0,
    }
    questions = Questions(bench.seed)
    rounds: dict[str, list[_Round]] = {"never measured": [], "burst": [], "coming": []}
    with Program(bench.model, settings) as program:
        program.wait_ready()
        pages = await open_pages(program.url, options.people)
        progress("a first burst: the PC has not been measured yet")
        rounds["never measured"].append(await _round(pages, questions, [0.0] * len(pages)))
        for repeat in range(bench.n_repeats):
            progress(f"repeat {repeat + 1} of {bench.n_repeats}: burst")
            burst = await _round(pages, questions, [0.0] * len(pages))
            rounds["burst"].append(burst)
            progress(f"repeat {repeat + 1} of {bench.n_repeats}: people keep coming")
            rate = _COMING * len(pages) / burst.took_s
            moments, at = [0.0] * (2 * options.slots), 0.0
            while len(moments) < len(pages):
                at += rng.expovariate(rate)
                moments.append(at)
            rounds["coming"].append(await _round(pages, questions, moments[: len(pages)]))
        await close_all(pages)
    rows = []
    for name, what in (
        ("never measured", "first burst after a start"),
        ("burst", "burst"),
        ("coming", "people coming"),
    ):
        target = None if name == "never measured" else _TARGET
        firsts = [_errors(one.first) for one in rounds[name]]
        everys = [_errors(one.every) for one in rounds[name]]
        rows += [
            Row.figure(
                f"{what}: error of the first promise, median", "%", [statistics.median(e) for e in firsts], target
            ),
            Row.figure(f"{what}: the same, p90", "%", [percentile(e, 0.9) for e in firsts]),
            Row.figure(f"{what}: error of every promise, median", "%", [statistics.median(e) for e in everys]),
        ]
    n_told = sum(len(one.first) for found in rounds.values() for one in found)
    note = f"{n_told} people waited {_SHORTEST_S:g} s or longer and were told how long; times are to the first words."
    return Findings(tuple(rows), notes=(note,))


async def _round(pages: Sequence[PageClient], questions: Questions, moments_s: Sequence[float]) -> _Round:
    """Everybody asks once, each at their moment, in a conversation of their own."""
    for page in pages:
        await page.new_chat()
    began_s = time.perf_counter()
    found = await asyncio.gather(
        *(_asked(page, questions.short(), moment) for page, moment in zip(pages, moments_s, strict=True))
    )
    waits = [told for told in found if told]
    if not waits:
        raise RuntimeError("nobody had to wait: more people or fewer slots are needed")
    return _Round(
        [told[0] for told in waits],
        [promise for told in waits for promise in told],
        time.perf_counter() - began_s,
    )


async def _asked(page: PageClient, text: str, moment_s: float) -> list[tuple[float, float]]:
    """(promised, waited) of every promise of this wait that was told long enough before its end."""
    await asyncio.sleep(moment_s)
    asking = asyncio.create_task(page.ask(text))
    told: list[tuple[float, float]] = []
    await asyncio.sleep(_LOOK_S / 3)
    while not asking.done():
        place = await page.place()
        if place["ahead"] is not None and place["wait_s"]:
            told.append((time.perf_counter(), float(place["wait_s"])))
        await asyncio.wait({asking}, timeout=_LOOK_S)
    exchange = await asking
    if not exchange.is_ok:
        raise RuntimeError(f"a question failed: {exchange.failure or 'no text'}")
    begun_s = exchange.arrivals_s[0]
    return [(promised, begun_s - at) for at, promised in told if begun_s - at >= _SHORTEST_S]


def _errors(promises: Sequence[tuple[float, float]]) -> list[float]:
    """In percent of the wait."""
    return [100 * abs(promised - waited) / waited for promised, waited in promises]
