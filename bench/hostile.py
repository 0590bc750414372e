"""What a script that means harm costs the others: people who chat and pause, with it and without it."""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from dataclasses import dataclass

import httpx

from bench.clients import ApiClient, PageClient, close_all, open_pages
from bench.command import Bench
from bench.exchange import Exchange, together
from bench.interleave import interleaved
from bench.program import Program
from bench.questions import Questions
from bench.results import Findings, Row
from bench.stats import Target

NAME = "hostile"
HELP = "first words of people who chat and pause, and /health, while a script sends the worst bodies"

_TTFT = Target(at_most=1.25)
_HEALTH_S = Target(at_most=0.1)
_THINK_S = (5.0, 30.0)
_MARKS = "a" + "\u0301" * 40_000  # 80 kB: the composition of so many marks grows with their square
_TURN = {"question": "q" * 1000, "text": "a" * 1000}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How many, how long."""
    parser.add_argument("--people", type=int, default=20, help="people who chat (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=64, help="longest answer (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=2, help="of each phase (default: %(default)s)")


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


@dataclass(frozen=True)
class _Phase:
    ttft_p90_s: float
    health_max_s: float
    n_failed: int
    n_attacks: int


async def _run(bench: Bench) -> Findings:
    questions = Questions(bench.seed)
    settings = {"max_answer_tokens": bench.options.tokens, "n_threads": bench.n_threads}
    with Program(bench.model, settings) as program:
        program.wait_ready()

        async def phase(is_hostile: bool) -> _Phase:
            return await _phase(program.url, questions, bench, is_hostile)

        found = await interleaved(bench.n_repeats, {"calm": lambda: phase(False), "hostile": lambda: phase(True)})
    calm, hostile = found["calm"], found["hostile"]
    ttft = ([each.ttft_p90_s for each in hostile], [each.ttft_p90_s for each in calm])
    rows = (
        Row.compared(f"first words of {bench.options.people} people, p90", "s", ttft[0], "calm", ttft[1], _TTFT),
        Row.figure("/health at worst, hostile", "s", [each.health_max_s for each in hostile], _HEALTH_S),
        Row.figure("/health at worst, calm", "s", [each.health_max_s for each in calm]),
        Row.figure("failed answers, hostile", "", [each.n_failed for each in hostile], Target(at_most=0)),
        Row.figure("hostile requests", "", [each.n_attacks for each in hostile]),
    )
    return Findings(rows, notes=("Clients and program share the cores; the limits of questions a minute are off.",))


async def _phase(url: str, questions: Questions, bench: Bench, is_hostile: bool) -> _Phase:
    pages = await open_pages(url, bench.options.people)
    until_s = time.perf_counter() + 60 * bench.options.minutes
    attack = _script(url, until_s) if is_hostile else asyncio.sleep(0, 0)
    people = together([_person(page, questions, until_s, seed) for seed, page in enumerate(pages)])
    load, health_max_s, n_attacks = await asyncio.gather(people, _health(url, until_s), attack)
    await close_all(pages)
    return _Phase(load.ttft_s(0.9), health_max_s, load.n_failed, n_attacks)


async def _person(page: PageClient, questions: Questions, until_s: float, seed: int) -> list[Exchange]:
    think = random.Random(seed)
    asked = []
    await asyncio.sleep(think.uniform(0, _THINK_S[1]))
    while time.perf_counter() < until_s:
        asked.append(await page.ask(questions.short()))
        await asyncio.sleep(think.uniform(*_THINK_S))
    return asked


async def _health(url: str, until_s: float) -> float:
    worst_s = 0.0
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http:
        while time.perf_counter() < until_s:
            sent_s = time.perf_counter()
            (await http.get("/health")).raise_for_status()
            worst_s = max(worst_s, time.perf_counter() - sent_s)
            await asyncio.sleep(0.1)
    return worst_s


async def _script(url: str, until_s: float) -> int:
    """One body after the other, each under a new cookie and tab, as fast as they are refused or taken."""
    n = 0
    many_parts = "[" + "[]," * 300_000 + "[]]"
    page = await PageClient(url).open()
    api = ApiClient(url)
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http:
        attacks = (
            lambda: page.ask(_MARKS),
            lambda: page.ask("| a |\n|-|\n" * 200),
            lambda: api.ask([{"role": "user", "content": _MARKS}], 8),
            lambda: api.ask([{"role": "user", "content": "x"}] * 5000, 8),
            lambda: http.put("/conversation", json={"turns": [_TURN] * 140}, headers={"x-tab": f"hostile-{n:012}"}),
            lambda: http.put("/conversation", json={"turns": [{"question": _MARKS, "text": _MARKS}]}),
            lambda: http.put("/conversation", content=many_parts),
            lambda: http.post("/gradio_api/queue/join", content=many_parts),
            lambda: http.post("/v1/chat/completions", content=many_parts),
            lambda: http.post("/admin/login", data={"password": _MARKS}),
            lambda: http.get("/", params={"x": "x" * 8000}),
        )
        while time.perf_counter() < until_s:
            http.cookies.clear()
            await attacks[n % len(attacks)]()
            n += 1
    await close_all([page, api])
    return n
