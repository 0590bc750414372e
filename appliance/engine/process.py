"""The engine's own process: read the inbox, step, report. It ends with its parent, however that one ends."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FrameType

from appliance.base.errors import ModelFileError, NoKernels, WrongNumbers
from appliance.engine.backend import Backend, Rows
from appliance.engine.batch_shape import slow_remainders
from appliance.engine.chat_template import TemplateUnusable
from appliance.engine.config import EngineConfig
from appliance.engine.core import BatchEngine, CrossedSequence, Updates
from appliance.engine.cpu import Courtesy, take_place
from appliance.engine.kernels import label_of
from appliance.engine.parked_disk import DiskShelf
from appliance.engine.prefix_cache import PrefixCache
from appliance.engine.request import EngineInfo
from appliance.engine.wire import Abort, Close, Forget, Kernels, LoadFailed, Ready, Report, Submit, ToEngine

log = logging.getLogger(__name__)

_WARM_UP_ROWS = 32
_IDLE_S = 2.0
"""Quiet time after which parked conversations are copied to disk."""
_SWEEP_S = 10.0
"""How often expired ones are looked for while nobody asks; otherwise parking does it."""
_TERM_S = 5.0
"""How long after SIGTERM the web process has to end this one in order."""


def main(connection: Connection, config: EngineConfig) -> None:
    """Entry point of the child process. `connection` carries the messages of wire.py both ways."""
    started_s = time.monotonic()
    settle_in(config)
    try:
        backend = _load(config, connection.send)
        padded = _warm_up(backend, config)
        engine = BatchEngine(backend, config, time.monotonic, _cache(config, backend), padded)
    except (ModelFileError, WrongNumbers, NoKernels) as error:
        connection.send(LoadFailed(error))
        return
    except TemplateUnusable as error:
        assert config.model_path is not None  # the echo backend's own template can be used
        problem, remedy = f"its chat template cannot be used ({error})", "Choose another model for chat."
        connection.send(LoadFailed(ModelFileError(config.model_path, problem, remedy, "template")))
        return
    info = EngineInfo(
        model_name=backend.model_name,
        n_slots=config.n_slots,
        n_ctx_seq=config.n_ctx_seq,
        n_vocab=backend.vocabulary.n_vocab,
        pid=os.getpid(),
        load_s=time.monotonic() - started_s,
        padded_remainders=padded,
        fingerprint=backend.fingerprint,
        instructions=backend.instructions,
        kernels=label_of(backend.kernels),
    )
    try:
        connection.send(Ready(info))
        _serve(connection, engine, _courtesy(config))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        log.info("the web process is gone: the engine ends")
    except CrossedSequence as fault:
        log.critical("the engine ends: %s", fault)  # the web process starts a new one
    finally:
        backend.close()


def settle_in(config: EngineConfig) -> None:
    """What every process that runs llama.cpp does first."""
    os.umask(0o077)  # whatever it writes is for this account alone
    # Ctrl-C and a service's stop reach the whole group; the web process drains first and then says when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if (hang_up := getattr(signal, "SIGHUP", None)) is not None:  # a closed terminal says it to the whole group too
        signal.signal(hang_up, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_late)
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    take_place(config)
    # Read by libgomp when llama.cpp is loaded. By default its threads spin at every barrier, and one that is not
    # running holds up the others for a whole time slice: beside a busy program decoding fell to a tenth.
    # A thousand rounds (microseconds) keep most of the speed on a quiet computer: `python -m bench spin`.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _load(config: EngineConfig, announce: Callable[[Kernels], None]) -> Backend:
    if config.backend == "echo":
        from appliance.engine.echo_backend import EchoBackend

        return EchoBackend(config.n_slots, config.echo_step_s)
    from appliance.engine.llama_backend import LlamaBackend  # here, so that echo needs no llama_cpp

    return LlamaBackend(config, announce)


def _cache(config: EngineConfig, backend: Backend) -> PrefixCache | None:
    """Parked conversations in RAM, and on disk where a directory is given and usable."""
    if not config.reuse:
        return None
    shelf = None
    if config.parked_dir is not None and config.parked_disk_mb > 0:
        try:
            shelf = DiskShelf(config.parked_dir, backend.fingerprint, limit_bytes=config.parked_disk_mb * 2**20)
        except OSError as error:
            log.warning("parked conversations stay in memory only: %s", error.strerror or type(error).__name__)
    return PrefixCache(
        ram_bytes=config.parked_ram_mb * 2**20, ttl_s=config.parked_ttl_s, shelf=shelf, wall_clock=time.time
    )


def _warm_up(backend: Backend, config: EngineConfig) -> frozenset[int]:
    """Touch every weight once, so that the first person does not wait for the disk; measure the batch shape."""
    if config.backend == "echo":
        return frozenset()
    ids = backend.vocabulary.tokenize("\n" * _WARM_UP_ROWS, markers=False)[:1] * _WARM_UP_ROWS
    backend.decode([Rows(0, 0, ids, wants_logits=True)])
    backend.truncate(0, 0)
    if config.padded_remainders is not None:
        return config.padded_remainders
    return slow_remainders(backend, config.n_slots, time.perf_counter)


def _serve(connection: Connection, engine: BatchEngine, courtesy: Courtesy | None) -> None:
    while True:
        updates: Updates = []
        if not engine.has_work and not connection.poll(_IDLE_S):
            while not connection.poll(0) and engine.persist_one():
                pass
            while not connection.poll(_SWEEP_S):
                engine.drop_expired()
        while connection.poll(0):
            message: ToEngine = connection.recv()
            if isinstance(message, Close):
                engine.close()
                return
            updates += _take(engine, message)
        window_s = engine.window_s()
        if window_s == 0.0:
            started_s = time.monotonic()
            updates += engine.step()
            if courtesy is not None:
                courtesy.after_step(time.monotonic() - started_s)
        _report(connection, engine, updates)
        if window_s > 0.0:
            connection.poll(window_s)


def _courtesy(config: EngineConfig) -> Courtesy | None:
    if not config.yields or config.priority in ("high", "realtime"):
        return None
    courtesy = Courtesy()
    courtesy.start()
    return courtesy


def _take(engine: BatchEngine, message: Submit | Abort | Forget) -> Updates:
    match message:
        case Submit():
            return engine.submit(message.request)
        case Abort():
            return engine.abort(message.request_id)
        case Forget():
            engine.forget(message.person, message.conversation)
            return []


def _report(connection: Connection, engine: BatchEngine, updates: Updates) -> None:
    connection.send(Report(tuple(updates), engine.waiting_ids(), engine.n_running, engine.n_decoded_total))


def _end_late(_number: int, _frame: FrameType | None) -> None:
    timer = threading.Timer(_TERM_S, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # the step loop may be inside llama.cpp: nothing gentler ends it in time
