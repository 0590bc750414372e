"""What neighbours who mean harm cost the others: people who chat and pause, with them and without."""

from __future__ import annotations

import argparse
import asyncio
import functools
import multiprocessing
import random
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import httpx

from appliance.base.paths import Paths
from bench.attackers import ATTACKERS, Attack, begin
from bench.clients import PageClient, close_all
from bench.command import Bench
from bench.exchange import Exchange, together
from bench.interleave import interleaved
from bench.program import Program, cpu_share
from bench.questions import Questions
from bench.results import Findings, Row
from bench.stats import Target

NAME = "hostile"
HELP = "first words of people who chat and pause, and /health, beside a hostile script, a browser and bad model files"

_TTFT = Target(at_most=1.25)
_HEALTH_S = Target(at_most=0.1)
_THINK_S = (5.0, 30.0)
_AS_SHIPPED = {
    "questions_per_minute": 20,
    "questions_per_minute_and_address": 200,
    "address_share": 5,
    "keyless_here": False,
}
_LOOK_S = 0.1
_NOTE = (
    "Everybody shares the cores with the program. So that what the attackers' own computing takes from it does not "
    "count, they do the same to another copy of it first (elsewhere); the limits are as shipped."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many, how long, beside whom."""
    parser.add_argument("--people", type=int, default=20, help="people who chat (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="longest answer (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=2, help="of each phase (default: %(default)s)")
    parser.add_argument("--by", choices=ATTACKERS, nargs="+", default=list(ATTACKERS), help="who (default: all)")
    parser.add_argument("--calm-minutes", type=float, help="of the phases without harm here (default: as long)")
    parser.add_argument("--together", action="store_true", help="all of them at once, not one after another")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


@dataclass(frozen=True)
class _Phase:
    ttft_p90_s: float
    health_max_s: float
    n_failed: int
    n_asked: int
    n_attacks: int
    web_cores: float


async def _run(bench: Bench) -> Findings:
    settings = {"max_answer_tokens": bench.options.tokens, "n_threads": bench.n_threads, **_AS_SHIPPED}
    groups = [bench.options.by] if bench.options.together else [[name] for name in bench.options.by]
    with Program(bench.model, settings) as program, Program(bench.model, {"backend": "echo", **_AS_SHIPPED}) as other:
        program.wait_ready()
        other.wait_ready()
        questions = Questions(bench.seed)
        phase = functools.partial(_phase, program, questions, bench)
        phases = {"calm": functools.partial(phase, [], other)}
        for group in groups:
            phases[f"{_name(group)} elsewhere"] = functools.partial(phase, group, other)
            phases[_name(group)] = functools.partial(phase, group, program)
        found = await interleaved(bench.n_repeats, phases)
    rows = _rows("calm", found["calm"], found["calm"])
    for group in groups:
        elsewhere = found[f"{_name(group)} elsewhere"]
        rows += _rows(f"{_name(group)} elsewhere", elsewhere, elsewhere) + _rows(
            _name(group), found[_name(group)], elsewhere
        )
    return Findings(tuple(rows), notes=(_NOTE,))


def _name(group: Sequence[str]) -> str:
    return " + ".join(group)


def _rows(name: str, phases: Sequence[_Phase], elsewhere: Sequence[_Phase]) -> list[Row]:
    ttft = [each.ttft_p90_s for each in phases]
    return [
        Row.compared(f"first words, p90, {name}", "s", ttft, "elsewhere", [e.ttft_p90_s for e in elsewhere], _TTFT)
        if phases is not elsewhere
        else Row.figure(f"first words, p90, {name}", "s", ttft),
        Row.figure(f"/health at worst, {name}", "s", [each.health_max_s for each in phases], _HEALTH_S),
        Row.figure(f"failed answers, {name}", "", [each.n_failed for each in phases], Target(at_most=0)),
        Row.figure(f"answers, {name}", "", [each.n_asked for each in phases]),
        Row.figure(f"hostile acts, {name}", "", [each.n_attacks for each in phases]),
        Row.figure(f"the page's process, {name}", "cores", [each.web_cores for each in phases]),
    ]


async def _phase(
    program: Program, questions: Questions, bench: Bench, attackers: Sequence[str], attacked: Program
) -> _Phase:
    loop = asyncio.get_running_loop()
    is_here = attacked is program
    seconds = 60 * (bench.options.minutes if is_here else bench.options.calm_minutes or bench.options.minutes)
    pages = [await PageClient(program.url, f"127.0.1.{1 + at}").open() for at in range(bench.options.people)]
    attack = Attack(attacked.url, seconds, attacked.owners_link("/"), Paths(attacked.data_dir).models, bench.model)
    with ProcessPoolExecutor(1 + len(ATTACKERS), multiprocessing.get_context("spawn")) as others:
        health = loop.run_in_executor(others, _health, program.url, seconds)
        acts = [loop.run_in_executor(others, begin, attacker, attack) for attacker in attackers]
        before, began_s = program.cpu_s(), time.perf_counter()
        people = together([_person(page, questions, began_s + seconds, seed) for seed, page in enumerate(pages)])
        load, health_max_s = await asyncio.gather(people, health)
        web_cores = cpu_share(before, program.cpu_s(), time.perf_counter() - began_s, ["web"])
        n_attacks = sum(await asyncio.gather(*acts))
    await close_all(pages)
    return _Phase(load.ttft_s(0.9), health_max_s, load.n_failed, len(load.exchanges), n_attacks, web_cores)


async def _person(page: PageClient, questions: Questions, until_s: float, seed: int) -> list[Exchange]:
    think = random.Random(seed)
    asked = []
    await asyncio.sleep(think.uniform(0, _THINK_S[1]))
    while time.perf_counter() < until_s:
        asked.append(await page.ask(questions.short()))
        await asyncio.sleep(think.uniform(*_THINK_S))
    return asked


def _health(url: str, seconds: float) -> float:
    """The longest answer in seconds, seen from a process of its own."""
    worst_s, until_s = 0.0, time.monotonic() + seconds
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as http:
        while time.monotonic() < until_s:
            sent_s = time.perf_counter()
            http.get("/health").raise_for_status()
            worst_s = max(worst_s, time.perf_counter() - sent_s)
            time.sleep(_LOOK_S)
    return worst_s
