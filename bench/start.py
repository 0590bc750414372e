"""From process start to a page that answers, against Gradio's own import; also of the packaged program."""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.command import Bench, add_program_argument
from bench.interleave import interleaved
from bench.program import Program
from bench.results import Findings, Row
from bench.stats import Target

NAME = "start"
HELP = "process start to page and /ready answering, against `import gradio` alone"

_EXTRA_S = 2.0
_EXTRA_PACKAGED_S = 1.5
_ONE_FILE_TIMES = 2.0
_IMPORT = "import gradio"
# The frozen program is no interpreter; with these flags it runs what multiprocessing asks of one, and what follows it.
_IMPORT_IN_IT = ("-B", "-S", "-I", "-c", "from multiprocessing.resource_tracker import main; import gradio")
_NOTES = ("The file cache is warm: the first start of a day also reads from the disk.",)


@dataclass(frozen=True)
class _Started:
    """Seconds from the start of the process."""

    page_s: float
    ready_s: float
    """The model has been loaded too. For an import both are the same."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Short runs: more of them."""
    parser.set_defaults(repeats=5)
    add_program_argument(parser)
    parser.add_argument("--one-file", type=Path, metavar="FILE", help="its one-file form, to be compared with it")


def run(bench: Bench) -> Findings:
    """Measure."""
    with tempfile.TemporaryDirectory(prefix="office-chat-bench-") as unpacked:
        return asyncio.run(_run(bench, Path(unpacked)))


async def _run(bench: Bench, unpacked: Path) -> Findings:
    one_file: Path | None = bench.options.one_file and bench.options.one_file.absolute()

    async def program() -> _Started:
        return await _start(bench, bench.program)

    async def first_of_one_file() -> _Started:
        with tempfile.TemporaryDirectory(prefix="office-chat-bench-") as fresh:
            return await _start(bench, one_file, Path(fresh))

    async def later_of_one_file() -> _Started:
        return await _start(bench, one_file, unpacked)

    async def imported() -> _Started:
        return await _import_gradio(bench.program)

    variants: dict[str, Callable[[], Awaitable[_Started]]] = {"program": program, _IMPORT: imported}
    if one_file is not None:
        await _start(bench, one_file, unpacked)
        variants |= {"one file, first start": first_of_one_file, "one file, later start": later_of_one_file}
    found = await interleaved(bench.n_repeats, variants)
    pages = {name: [start.page_s for start in starts] for name, starts in found.items()}
    ready = [start.ready_s for start in found["program"]]
    return Findings((*_rows(bench.program is not None, pages, ready), *_one_file_rows(pages)), notes=_NOTES)


def _rows(is_packaged: bool, pages: dict[str, list[float]], ready: Sequence[float]) -> list[Row]:
    base = pages[_IMPORT]
    compared = pages["program"] if is_packaged else ready
    extra = [one - other for one, other in zip(compared, base, strict=True)]
    target = Target(at_most=_EXTRA_PACKAGED_S if is_packaged else _EXTRA_S)
    rows = [
        Row.compared("start to answering page", "s", compared, _IMPORT, base),
        Row.figure("more than that import", "s", extra, target),
    ]
    return [*rows, Row.figure("start to page and model ready", "s", ready)] if is_packaged else rows


def _one_file_rows(pages: dict[str, list[float]]) -> list[Row]:
    return [
        Row.compared(f"{name}: page", "s", times, "the folder", pages["program"], Target(at_most=_ONE_FILE_TIMES))
        for name, times in pages.items()
        if name.startswith("one file")
    ]


async def _start(bench: Bench, program: Path | None, unpack_into: Path | None = None) -> _Started:
    variables = {"XDG_DATA_HOME": str(unpack_into)} if unpack_into else {}
    with Program(bench.model, {"n_threads": bench.n_threads}, packaged=program, variables=variables) as started:
        return _Started(started.wait_page(), started.wait_ready())


async def _import_gradio(program: Path | None) -> _Started:
    env = {**os.environ, "GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_OFFLINE": "1"}
    command = [str(program), *_IMPORT_IN_IT] if program else [sys.executable, "-c", _IMPORT]
    began_s = time.perf_counter()
    await asyncio.to_thread(subprocess.run, command, env=env, check=True)
    took_s = time.perf_counter() - began_s
    return _Started(took_s, took_s)
