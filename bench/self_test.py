"""The self-test's promise, made by its own page, against people who then come."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Final

import httpx

from appliance.engine.config import USUAL_ANSWER_TOKENS
from appliance.operate.self_test import Verdict, read_verdict
from appliance.settings.schema import DEFAULT_SYSTEM_PROMPT
from bench.colleagues import LONGEST_ANSWER, Colleagues, Seen
from bench.command import Bench
from bench.interleave import progress
from bench.program import Program
from bench.results import Findings, Row
from bench.stats import Target

NAME = "self-test"
HELP = 'the self-test\'s promise ("comfortable for 12 people at once, 20 with waiting") against people who then come'

_TARGET: Final = Target(at_least=0.75, at_most=1.25)
_PATIENCE: Final = Target(at_most=1.25 * 15)
"""Seconds: what "with waiting" promises."""
_STEP: Final = 1.25
_N_LEVELS: Final = 3
_PAGE: Final = "/admin/first-run?step=test&lang=en"
_LONGEST_S: Final = 300.0
_LOOK_S: Final = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Who comes, and how."""
    parser.set_defaults(repeats=1)
    parser.add_argument(
        "--protocol", choices=("page", "api"), default="page", help="what people come with (default: %(default)s)"
    )
    parser.add_argument("--slots", type=int, default=16, help="answers written at once (default: %(default)s)")
    parser.add_argument("--no-tuning", action="store_true", help="without the tick that tunes the model first")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    options = bench.options
    settings = {
        "max_batch_size": options.slots,
        "max_answer_tokens": LONGEST_ANSWER,
        "n_threads": options.threads,  # 0 lets the self-test find them
        "disconnect_grace_s": 0,  # who has seen enough leaves
        "disconnect_grace_busy_s": 0,
    }
    promised: list[Verdict] = []
    came: list[tuple[Seen, int]] = []
    waits_s: list[float] = []
    notes: list[str] = []
    for repeat in range(bench.n_repeats):
        with Program(bench.model, settings) as program:
            program.wait_ready()
            progress(f"repeat {repeat + 1} of {bench.n_repeats}: the self-test")
            began_s = time.perf_counter()
            verdict = await _self_test(program, is_tuning=not options.no_tuning)
            notes.append(
                f"Promised after {time.perf_counter() - began_s:.0f} s: {verdict.people} people, "
                f"{verdict.each_per_s:.1f} tokens/s each; {verdict.with_waiting} with waiting."
            )
            colleagues = Colleagues(program.url, bench.model, options.protocol, DEFAULT_SYSTEM_PROMPT)
            levels = await _levels(colleagues, verdict)
            progress(f"{verdict.with_waiting} at the same moment")
            waits_s.append(await colleagues.burst(verdict.with_waiting))
        promised.append(verdict)
        came.append((levels[0], max((level.n_people for level in levels if level.is_comfortable), default=0)))
        notes += [f"{level}." for level in levels]
    if not all(n_people for _, n_people in came):
        raise RuntimeError("nobody was comfortable: " + " ".join(notes))
    against = "those who came"
    rows = (
        Row.compared(
            "comfortable at once",
            "people",
            [verdict.people for verdict in promised],
            against,
            [n_people for _, n_people in came],
            _TARGET,
        ),
        Row.compared(
            "speed for each of so many",
            "tokens/s",
            [verdict.each_per_s for verdict in promised],
            against,
            [level.each_per_s for level, _ in came],
            _TARGET,
        ),
        Row.figure("with waiting, all at the same moment: nine in ten first words within", "s", waits_s, _PATIENCE),
    )
    return Findings(rows, part="" if options.protocol == "page" else options.protocol, notes=tuple(notes))


async def _self_test(program: Program, *, is_tuning: bool) -> Verdict:
    """As the owner does it, on the page of the first run."""
    form = {"action": "test", **({"tune": "on"} if is_tuning else {})}
    async with httpx.AsyncClient(base_url=program.url, trust_env=False, timeout=60) as owner:
        await owner.get(program.owners_link("/"))
        pressed = await owner.post(_PAGE, data=form, headers={"origin": program.url})
        if pressed.status_code != 303:
            raise RuntimeError(f"the self-test could not be begun: HTTP {pressed.status_code}")
        until_s = time.perf_counter() + _LONGEST_S
        while "<progress" in (await owner.get(_PAGE)).text:
            if time.perf_counter() > until_s:
                raise RuntimeError(f"the self-test was not through after {_LONGEST_S:g} s")
            await asyncio.sleep(_LOOK_S)
    verdict = read_verdict(program.data_dir / "self-test.json")
    if verdict is None or not verdict.people:
        raise RuntimeError("the self-test promised nobody anything: this model is too slow here, or it failed")
    return verdict


async def _levels(colleagues: Colleagues, verdict: Verdict) -> list[Seen]:
    """The promised number of people first, then a quarter more or fewer, then in between."""
    seen: list[Seen] = []
    low, high, n_people = 0, 0, verdict.people
    while len(seen) < _N_LEVELS and n_people > 0 and n_people not in (level.n_people for level in seen):
        progress(f"{n_people} people")
        level = await colleagues.see(n_people, USUAL_ANSWER_TOKENS / verdict.each_per_s)
        progress(str(level))
        seen.append(level)
        low, high = (n_people, high) if level.is_comfortable else (low, n_people)
        if not high:
            n_people = max(low + 1, round(low * _STEP))
        elif not low:
            n_people = min(high - 1, round(high / _STEP))
        else:
            n_people = (low + high) // 2
    return seen
