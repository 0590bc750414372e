"""From process start to a page that answers, against Gradio's own import."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time

from bench.command import Bench
from bench.interleave import interleaved
from bench.program import Program
from bench.results import Findings, Row
from bench.stats import Spread, Target

NAME = "start"
HELP = "process start to page and /ready answering, against `import gradio` alone"

_EXTRA_S = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Short runs: more of them."""
    parser.set_defaults(repeats=5)


def run(bench: Bench) -> Findings:
    """Measure."""
    return asyncio.run(_run(bench))


async def _run(bench: Bench) -> Findings:
    async def program() -> float:
        with Program(bench.model, {"n_threads": bench.n_threads}) as started:
            return started.wait_ready()

    found = await interleaved(bench.n_repeats, {"program": program, "import gradio": _import_gradio})
    ready, imported = found["program"], found["import gradio"]
    extra = [one - other for one, other in zip(ready, imported, strict=True)]
    rows = (
        Row(
            "start to answering page",
            "s",
            Spread.of(ready),
            "import gradio",
            Spread.of(imported),
            Spread.of_ratios(ready, imported),
        ),
        Row.figure("more than that import", "s", extra, Target(at_most=_EXTRA_S)),
    )
    return Findings(rows, notes=("The file cache is warm: the first start of a day also reads from the disk.",))


async def _import_gradio() -> float:
    env = {**os.environ, "GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1"}
    began_s = time.perf_counter()
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", "import gradio"], env=env, check=True)
    return time.perf_counter() - began_s
