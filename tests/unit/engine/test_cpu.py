"""Stepping back for others, and taking no more cores than there are."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import psutil
import pytest

from appliance.engine.config import EngineConfig
from appliance.engine.cpu import Courtesy, physical_cores, thread_count


def courtesy(monkeypatch, *, can_return: bool) -> tuple[Courtesy, list[float]]:
    monkeypatch.setattr("appliance.engine.cpu._may_raise_priority", lambda: can_return)
    pauses: list[float] = []
    return Courtesy(pauses.append), pauses


@pytest.mark.parametrize(
    ("n_physical", "n_logical", "n_allowed", "n_threads"),
    [(4, 4, 4, 4), (4, 8, 8, 4), (4, 8, 2, 2), (None, 4, 4, 1), (1, 1, 1, 1)],
)
def test_case_57_threads_are_physical_cores_within_what_is_allowed(
    monkeypatch, n_physical, n_logical, n_allowed, n_threads
):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: n_logical if logical else n_physical)
    monkeypatch.setattr("appliance.engine.cpu._allowed_cores", lambda: list(range(n_allowed)))
    assert thread_count(EngineConfig()) == physical_cores() == n_threads
    assert thread_count(EngineConfig(n_threads=3)) == 3


def test_others_get_pauses_where_the_priority_could_not_be_raised_again(monkeypatch):
    polite, pauses = courtesy(monkeypatch, can_return=False)
    polite.after_step(0.1)
    assert pauses == []
    polite.note(other_cores=0.8)
    polite.after_step(0.1)
    assert pauses == [pytest.approx(0.03)]
    polite.note(other_cores=0.2)
    assert polite.others_busy, "between the two thresholds nothing changes"
    polite.note(other_cores=0.05)
    polite.after_step(0.1)
    assert len(pauses) == 1


def in_a_process(code: str) -> str:
    """Run in a process of its own: priority and affinity are the process's."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(not hasattr(psutil.Process, "cpu_affinity"), reason="this system has no processor affinity")
def test_the_chosen_cores_are_the_only_ones():
    core = psutil.Process().cpu_affinity()[0]
    code = (
        "import psutil; from appliance.engine.config import EngineConfig; from appliance.engine import cpu;"
        f"cpu.take_place(EngineConfig(cores=({core},))); print(psutil.Process().cpu_affinity(), cpu.physical_cores())"
    )
    assert in_a_process(code) == f"[{core}] 1"


def test_real_time_is_refused_while_the_engine_may_use_all_cores():
    code = (
        "import os; from appliance.engine.config import EngineConfig; from appliance.engine import cpu;"
        "cpu.take_place(EngineConfig(priority='realtime')); print(os.sched_getscheduler(0) == os.SCHED_OTHER)"
    )
    assert in_a_process(code) == "True"


def test_low_priority_is_for_every_thread():
    code = (
        "import os, threading, psutil; from appliance.engine.config import EngineConfig;"
        "from appliance.engine import cpu;"
        "wait = threading.Event(); t = threading.Thread(target=wait.wait); t.start();"
        "cpu.take_place(EngineConfig(priority='low'));"
        "print({os.getpriority(os.PRIO_PROCESS, x.id) for x in psutil.Process().threads()}); wait.set()"
    )
    assert in_a_process(code) == "{10}"


def test_what_the_system_refuses_is_logged_and_not_fatal(caplog):
    from appliance.engine.cpu import take_place

    take_place(dataclasses.replace(EngineConfig(), cores=(4095,)))
    assert "refused" in caplog.text
