"""The engine's own process: read the inbox, step, report. It ends with its parent, however that one ends."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import Connection

from appliance.engine.backend import Backend, Rows
from appliance.engine.config import EngineConfig
from appliance.engine.core import CrossedSequence, Engine, Updates
from appliance.engine.prompt import TemplateUnusable
from appliance.engine.request import EngineInfo
from appliance.engine.wire import Abort, Close, LoadFailed, Ready, Report, Submit, ToEngine
from appliance.errors import ModelFileError

log = logging.getLogger(__name__)

_WARM_UP_ROWS = 32


def main(connection: Connection, config: EngineConfig) -> None:
    """Entry point of the child process. `connection` carries the messages of wire.py both ways."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the web process decides
    threading.Thread(target=_end_with_parent, name="parent-watch", daemon=True).start()
    started_s = time.monotonic()
    try:
        backend = _load(config)
        engine = Engine(backend, config, time.monotonic)
        _warm_up(backend, config)
    except (ModelFileError, TemplateUnusable) as error:
        connection.send(LoadFailed(error))
        return
    info = EngineInfo(
        model_name=backend.model_name,
        n_slots=config.n_slots,
        n_ctx_seq=config.n_ctx_seq,
        n_vocab=backend.vocabulary.n_vocab,
        pid=os.getpid(),
        load_s=time.monotonic() - started_s,
    )
    try:
        connection.send(Ready(info))
        _serve(connection, engine)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        log.info("the web process is gone: the engine ends")
    except CrossedSequence as fault:
        log.critical("the engine ends: %s", fault)  # the web process starts a new one
    finally:
        backend.close()


def _load(config: EngineConfig) -> Backend:
    if config.backend == "echo":
        from appliance.engine.echo_backend import EchoBackend

        return EchoBackend(config.n_slots, config.echo_step_s)
    from appliance.engine.llama_backend import LlamaBackend  # here, so that echo needs no llama_cpp

    return LlamaBackend(config)


def _warm_up(backend: Backend, config: EngineConfig) -> None:
    """Touch every weight once, so that the first person does not wait for the disk."""
    if config.backend == "echo":
        return
    ids = backend.vocabulary.tokenize("\n" * _WARM_UP_ROWS, markers=False)[:1] * _WARM_UP_ROWS
    backend.decode([Rows(0, 0, ids, wants_logits=True)])
    backend.truncate(0, 0)
    backend.decode([Rows(slot, 0, ids[:1], wants_logits=True) for slot in range(config.n_slots)])
    for slot in range(config.n_slots):
        backend.truncate(slot, 0)


def _serve(connection: Connection, engine: Engine) -> None:
    while True:
        updates: Updates = []
        if not engine.has_work:
            connection.poll(None)
        while connection.poll(0):
            message: ToEngine = connection.recv()
            if isinstance(message, Close):
                return
            updates += _take(engine, message)
        window_s = engine.wait_s()
        if window_s == 0.0:
            updates += engine.step()
        _report(connection, engine, updates)
        if window_s > 0.0:
            connection.poll(window_s)


def _take(engine: Engine, message: Submit | Abort) -> Updates:
    if isinstance(message, Submit):
        return engine.submit(message.request)
    return engine.abort(message.request_id)


def _report(connection: Connection, engine: Engine, updates: Updates) -> None:
    connection.send(Report(tuple(updates), engine.waiting_ids(), engine.n_running, engine.n_decoded_total))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # the step loop may be inside llama.cpp: nothing gentler ends it in time
