"""Work on model files in processes of their own: llama.cpp ends its process when an assertion fails or the CPU lacks
an instruction, and a process can be stopped at any moment.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

from appliance.base.errors import ApplianceError, ModelFileError
from appliance.engine.config import EngineConfig
from appliance.engine.cpu import thread_count
from appliance.engine.process import settle_in
from appliance.tuning.measure import Measurement, Part, measure

_LOOK_S = 0.1
_END_S = 5.0
"""For a process that has answered to end by itself."""
_FALL_S = 0.5
"""For one that has not: so long its own exit code may take."""

TypeName = Literal["Q4_0", "IQ4_NL", "Q8_0"]
"""Types with 32-wide blocks, for which llama.cpp may have kernels on repacked rows."""


class JobFailed(ApplianceError):
    """The job's process could not do it, or ended on the way."""


class JobCancelled(ApplianceError):
    """Somebody asked for the end."""


@dataclass(frozen=True)
class Quantise:
    """See `llama_quantize.quantise`."""

    source: Path
    target: Path
    kind: TypeName
    embedding_type: int | None
    config: EngineConfig


@dataclass(frozen=True)
class Measure:
    """See `measure.measure`."""

    config: EngineConfig
    texts: tuple[str, ...]
    part: Part
    reference: Path
    is_reference: bool


@dataclass(frozen=True)
class CountThreads:
    """See `thread_pace.measure_threads`."""

    config: EngineConfig
    counts: tuple[int, ...]


Job = Quantise | Measure | CountThreads
Result = Measurement | dict[int, tuple[float, ...]] | None


def run_job(job: Job, cancelled: threading.Event) -> Result:
    """Do it in a new process; blocks the calling thread.

    Raises ModelFileError or OSError as the job did, JobFailed when its process ended, JobCancelled soon after
    `cancelled` was set.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=main, args=(theirs, job), name="tuning", daemon=True)
    child.start()
    theirs.close()
    answer: Done | Exception | None = None
    try:
        while not multiprocessing.connection.wait([ours, child.sentinel], timeout=_LOOK_S):
            if cancelled.is_set():
                raise JobCancelled("The tuning was cancelled.")
        with contextlib.suppress(EOFError, ConnectionResetError):
            answer = ours.recv()
    finally:
        child.join(_END_S if answer else _FALL_S)
        if child.is_alive():
            child.kill()
            child.join()
        ours.close()
        exit_code = child.exitcode
        child.close()
    match answer:
        case Done():
            return answer.result
        case Exception():
            raise answer
    raise JobFailed(f"its process ended with code {exit_code}")


@dataclass(frozen=True)
class Done:
    """What the process sends at its end, unless it sends the error."""

    result: Result


def main(connection: Connection, job: Job) -> None:
    """Entry point of the child process."""
    settle_in(job.config)
    try:
        connection.send(Done(_do(job)))
    except (ModelFileError, OSError) as error:
        connection.send(error)
    except (ApplianceError, ValueError) as error:
        connection.send(JobFailed(str(error)))


def _do(job: Job) -> Result:
    match job:
        case Quantise():
            from appliance.tuning.llama_quantize import quantise  # here, so that the web process needs no llama_cpp

            n_threads, n_passed_over = thread_count(job.config), job.config.n_kernels_passed_over
            quantise(job.source, job.target, job.kind, job.embedding_type, n_threads, n_passed_over)
            return None
        case Measure():
            return measure(job.config, job.texts, job.part, job.reference, job.is_reference)
        case CountThreads():
            from appliance.tuning.thread_pace import measure_threads

            return measure_threads(job.config, job.counts)
