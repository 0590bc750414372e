"""How many threads: only what is sensible is measured, only what is clearly faster is taken, the owner's word first."""

from __future__ import annotations

import threading

import pytest

from appliance.engine.config import EngineConfig
from appliance.engine.cpu import thread_count
from appliance.tuning import threads
from appliance.tuning.threads import candidates, choose_threads, for_this_cpu, tune_threads
from appliance.tuning.worker_jobs import CountThreads, JobFailed

EVEN = (2.0, 2.1, 2.0)


@pytest.mark.parametrize(
    ("n_physical", "n_logical", "worth"),
    [
        (1, 1, (1,)),
        (2, 2, (2,)),
        (2, 4, (2, 4)),
        (4, 4, (4, 3)),
        (4, 8, (4, 3, 8)),
        (14, 20, (14, 13, 6, 20)),  # six large cores with two threads each, eight small ones
    ],
)
def test_what_is_worth_a_measurement(n_physical, n_logical, worth):
    assert candidates(n_physical, n_logical) == worth


@pytest.mark.parametrize(
    ("times_s", "chosen"),
    [
        ({4: EVEN, 3: (1.8, 1.9, 1.8), 8: (2.5, 2.5, 2.5)}, 3),
        ({4: EVEN, 8: (1.5, 1.5, 1.6), 3: (1.8, 1.9, 1.8)}, 8),
        ({4: EVEN, 3: (1.95, 2.0, 1.95)}, 4),  # two and a half percent
        ({4: EVEN, 3: (1.5, 1.5, 2.1)}, 4),  # not in every round
        ({4: EVEN, 3: (2.0, 2.1, 2.0)}, 4),
    ],
)
def test_another_number_has_to_be_clearly_faster_in_every_round(times_s, chosen):
    assert choose_threads(times_s, 4) == chosen


class Job:
    """Stands for the process that measures: with three threads all goes a fifth faster."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, job: CountThreads, _cancelled: threading.Event) -> dict[int, tuple[float, ...]]:
        if self.error is not None:
            raise self.error
        self.asked.append(job.counts)
        return {count: (1.6, 1.6, 1.7) if count == 3 else EVEN for count in job.counts}


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr(threads, "physical_cores", lambda: 4)
    monkeypatch.setattr(threads, "logical_cores", lambda: 8)


@pytest.fixture
def config(tmp_path) -> EngineConfig:
    return EngineConfig(model_path=tmp_path / "m.gguf")


def test_the_number_is_kept_for_this_cpu_and_used_by_the_next_engine(tmp_path, monkeypatch, four_cores, config):
    folder, job = tmp_path / "tuned", Job()
    assert for_this_cpu(config, folder) == config
    assert tune_threads(config, folder, threading.Event(), job) == 3
    assert job.asked == [(4, 3, 8)]
    assert thread_count(for_this_cpu(config, folder)) == 3
    monkeypatch.setattr(threads, "cpu_identity", lambda: ("another", "another"))
    assert for_this_cpu(config, folder) == config


@pytest.mark.parametrize("own", [{"n_threads": 2}, {"cores": (0, 1)}])
def test_what_the_owner_has_set_wins_and_is_not_measured(tmp_path, four_cores, config, own):
    folder, job = tmp_path / "tuned", Job()
    tune_threads(config, folder, threading.Event(), Job())
    set_by_owner = EngineConfig(model_path=config.model_path, **own)
    assert tune_threads(set_by_owner, folder, threading.Event(), job) == 0
    assert job.asked == []
    assert for_this_cpu(set_by_owner, folder) == set_by_owner


def test_where_only_one_number_is_sensible_nothing_is_measured(tmp_path, monkeypatch, config):
    monkeypatch.setattr(threads, "physical_cores", lambda: 2)
    monkeypatch.setattr(threads, "logical_cores", lambda: 2)
    job = Job()
    assert tune_threads(config, tmp_path / "tuned", threading.Event(), job) == 0
    assert job.asked == []
    assert not (tmp_path / "tuned").exists()


def test_a_measurement_that_fails_changes_nothing(tmp_path, four_cores, config):
    folder = tmp_path / "tuned"
    tune_threads(config, folder, threading.Event(), Job())
    with pytest.raises(JobFailed):
        tune_threads(config, folder, threading.Event(), Job(JobFailed("its process ended")))
    assert thread_count(for_this_cpu(config, folder)) == 3


@pytest.mark.parametrize("content", [b"", b"[]", b'{"cpu": "x"}', b'{"cpu": "x", "n_threads": 999}'])
def test_a_note_that_cannot_be_used_leaves_the_physical_cores(tmp_path, four_cores, config, content):
    (tmp_path / "threads.json").write_bytes(content)
    assert for_this_cpu(config, tmp_path) == config
