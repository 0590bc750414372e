"""The order of work, what is kept of it, and that an interruption at any point changes nothing."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections import namedtuple

import numpy as np
import pytest

from appliance.base.errors import ModelFileError
from appliance.engine.config import EngineConfig
from appliance.tuning.choices import Choices, tuned_file
from appliance.tuning.gguf_layout import EMBEDDING, read_layout
from appliance.tuning.measure import Measurement
from appliance.tuning.tuner import N_ROUNDS, Progress, Tuner, TuningFailed
from appliance.tuning.verdict import Form
from appliance.tuning.worker_jobs import JobCancelled, JobFailed, Measure, Quantise
from tests.unit.engine.scripted import FakeClock
from tests.unit.tuning.files import write_model

CONFIG = EngineConfig(n_slots=2, n_threads=2)
Usage = namedtuple("Usage", "total used free")
FIGURES = {  # times as fast, nats
    "models": (1.0, 0.0),
    "Q4_0": (2.5, 0.3),
    "IQ4_NL": (1.8, 0.05),
    "Q8_0": (1.7, 0.01),
    "head": (1.2, 0.01),
}


class Processes:
    """Does what the job's processes would leave behind, and fails or is interrupted where a test says so."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.jobs: list[Quantise | Measure] = []
        self.fail: dict[str, Exception] = {}
        self.before = lambda job: None

    def __call__(self, job: Quantise | Measure, cancelled: threading.Event) -> Measurement | None:
        self.jobs.append(job)
        self.before(job)
        if cancelled.is_set():
            raise JobCancelled("The tuning was cancelled.")
        if isinstance(job, Quantise):
            self.clock.now_s += 5
            self._fail_if_told(job.kind)
            write_model(job.target, tied=False, seed=len(job.kind))
            return None
        self.clock.now_s += 2
        name = "models" if job.config.model_path.parent.name == "models" else job.config.model_path.stem
        self._fail_if_told(f"measure {name}")
        if job.is_reference:
            job.reference.write_bytes(b"log-probabilities")
        assert job.reference.exists()
        speed, kl = FIGURES[name]
        many = np.full(4, kl, dtype=np.float32)
        return Measurement(
            prefill_per_s=100 * speed,
            many_per_s=80 * speed,
            one_per_s=30 * speed,
            text=np.array([0, 1, 0, 1], dtype=np.int8),
            surprise=many + 2,
            divergence=many,
            agrees=many < 0.2,
        )

    def _fail_if_told(self, what: str) -> None:
        if what in self.fail:
            raise self.fail[what]

    def measured(self) -> list[str]:
        paths = [job.config.model_path for job in self.jobs if isinstance(job, Measure)]
        return ["source" if path.parent.name == "models" else path.stem for path in paths]


class Bench:
    """A tuner over those processes, with a model and a data folder."""

    def __init__(self, tmp_path, *, tied=True, n_parts=1):
        (tmp_path / "models").mkdir()
        self.source = write_model(tmp_path / "models" / "chat.gguf", tied=tied, n_parts=n_parts)
        self.folder = tmp_path / "tuned"
        self.clock = FakeClock()
        self.processes = Processes(self.clock)
        self.progress: list[Progress] = []

    def tuner(self, max_kl=0.1):
        return Tuner(self.source, self.folder, CONFIG, max_kl, self.progress.append, self.processes, self.clock)

    def left(self):
        """Everything below the tuning folder."""
        return sorted(path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file())

    def used(self, max_kl=0.1):
        return tuned_file(self.source, self.folder, CONFIG.n_threads, max_kl)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr("appliance.tuning.tuner.available_ram_bytes", lambda: 2**33)
    return Bench(tmp_path)


def test_the_fastest_within_the_bound_is_kept_and_found_at_the_next_start(bench):
    result = bench.tuner().run()
    assert result.chosen.form is Form.IQ4_NL
    assert result.gain == pytest.approx(1.8)
    assert result.file == bench.used()
    assert result.file.name == bench.source.name  # the name people see as the model's
    assert len(bench.left()) == 2  # the file and the list
    assert [row.form for row in result.rows] == [Form.SOURCE, Form.Q4_0, Form.IQ4_NL, Form.Q8_0, Form.HEAD]
    assert result.took_s == bench.clock.now_s - 100


def test_the_owners_bound_decides(bench):
    assert bench.tuner(max_kl=0.5).run().chosen.form is Form.Q4_0
    assert bench.used(max_kl=0.5) is not None
    assert bench.used(max_kl=0.1) is None


def test_where_nothing_is_allowed_the_source_stays(bench):
    result = bench.tuner(max_kl=0.001).run()
    assert result.chosen.form is Form.SOURCE
    assert result.file is None
    assert bench.used() is None
    assert bench.left() == ["choices.json"]


def test_another_choice_takes_the_place_of_the_first(bench):
    first = bench.tuner(max_kl=0.5).run().file
    second = bench.tuner(max_kl=0.1).run().file
    assert first.exists()  # a program that runs may still need it
    assert bench.used(max_kl=0.5) == second
    Choices(bench.folder).sweep()
    assert not first.exists()
    assert second.exists()


def test_the_same_choice_again_replaces_its_file(bench):
    assert bench.tuner().run().file == bench.tuner().run().file
    assert len(bench.left()) == 2


def test_a_tied_head_is_written_a_second_time_and_quantised_there(bench):
    embedding_types = set()

    def look(job):
        if isinstance(job, Quantise):
            assert not read_layout(job.source).has_tied_head
            embedding_types.add(job.embedding_type)

    bench.processes.before = look
    bench.tuner().run()
    assert embedding_types == {read_layout(bench.source).tensors[EMBEDDING].type_id}


def test_a_model_with_its_own_head_is_quantised_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("appliance.tuning.tuner.available_ram_bytes", lambda: 2**33)
    bench = Bench(tmp_path, tied=False)
    result = bench.tuner().run()
    assert {job.source for job in bench.processes.jobs if isinstance(job, Quantise)} == {bench.source}
    assert [row.form for row in result.rows] == [Form.SOURCE, Form.Q4_0, Form.IQ4_NL, Form.Q8_0]
    assert bench.progress[-1].number == bench.progress[-1].n_steps


def test_passes_go_round_and_the_source_comes_first_in_each(bench):
    all_of_them = ["source", "Q4_0", "IQ4_NL", "Q8_0", "head"]
    bench.tuner(max_kl=10).run()
    assert bench.processes.measured() == [*all_of_them, *all_of_them[:1], *all_of_them[:0:-1], "source", "Q4_0"]
    bench.processes.jobs.clear()
    bench.tuner(max_kl=0.1).run()
    assert bench.processes.measured() == [
        *all_of_them,
        *["source", "head", "Q8_0", "IQ4_NL"],  # Q4_0 loses far too much
        *["source", "IQ4_NL", "Q8_0"],  # the head gains too little
    ]
    parts = [job.part.number for job in bench.processes.jobs if isinstance(job, Measure) and job.is_reference]
    assert parts == list(range(N_ROUNDS))


def test_progress_counts_to_its_end_and_tells_the_time_left(bench):
    bench.tuner().run()
    assert [progress.number for progress in bench.progress] == list(range(1, len(bench.progress) + 1))
    assert bench.progress[-1].n_steps == len(bench.progress)
    totals = [progress.n_steps for progress in bench.progress]
    assert totals == sorted(totals, reverse=True)
    assert bench.progress[0].left_s is None
    after_one = next(progress for progress in bench.progress if progress.left_s is not None)
    assert after_one.left_s == 2 * (after_one.n_steps - after_one.number)
    assert bench.progress[-1].left_s == 0


@pytest.mark.parametrize("error", [JobFailed("its process ended with code -4"), ModelFileError("x", "bad", "No.")])
@pytest.mark.parametrize("what", ["IQ4_NL", "measure IQ4_NL"])
def test_a_form_that_crashes_is_left_out_and_the_others_go_on(bench, what, error):
    bench.processes.fail[what] = error
    result = bench.tuner().run()
    assert result.chosen.form is Form.Q8_0
    failed = next(row for row in result.rows if row.form is Form.IQ4_NL)
    assert failed.problem == str(error)
    assert bench.progress[-1].number == bench.progress[-1].n_steps


def test_a_source_that_cannot_be_measured_ends_it(bench):
    bench.processes.fail["measure models"] = JobFailed("its process ended with code -9")
    with pytest.raises(JobFailed):
        bench.tuner().run()
    assert bench.left() == []


def test_cancelling_at_any_step_leaves_nothing_and_changes_nothing(bench):
    kept = bench.tuner().run().file
    before = bench.left()
    n_jobs = len(bench.processes.jobs)
    for stop_at in range(n_jobs):
        bench.processes.jobs.clear()
        tuner = bench.tuner()
        bench.processes.before = lambda _job, at=stop_at, it=tuner: (
            it.cancel() if len(bench.processes.jobs) > at else None
        )
        with pytest.raises(JobCancelled):
            tuner.run()
        assert bench.left() == before
        assert bench.used() == kept


@pytest.mark.parametrize("at", [Quantise, Measure])
def test_ctrl_c_leaves_nothing(bench, at):
    def interrupt(job):
        if isinstance(job, at):
            raise KeyboardInterrupt

    bench.processes.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.tuner().run()
    assert list(bench.folder.iterdir()) == []


def test_the_disk_is_checked_first(bench, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: Usage(10**9, 10**9, 50_000_000))
    with pytest.raises(TuningFailed, match=r"needs 2\d\d MB of free disk .* there are 50 MB .*--data-dir"):
        bench.tuner().run()
    assert bench.processes.jobs == []


def test_memory_is_checked_first(bench, monkeypatch):
    monkeypatch.setattr("appliance.tuning.tuner.available_ram_bytes", lambda: 100_000_000)
    with pytest.raises(TuningFailed, match=r"free memory, and there are 100 MB.* Close other programs"):
        bench.tuner().run()
    assert bench.processes.jobs == []


def test_a_disk_that_fills_up_on_the_way_is_named(bench, monkeypatch):
    real = shutil.disk_usage

    def fill(job):
        if isinstance(job, Quantise):
            monkeypatch.setattr("shutil.disk_usage", lambda _folder: Usage(10**9, 10**9, 1000))

    bench.processes.before = fill
    bench.processes.fail["Q4_0"] = ModelFileError("x", "llama.cpp cannot write it", "Choose another.")
    with pytest.raises(TuningFailed, match="disk is full"):
        bench.tuner().run()
    assert real(bench.folder).free > 0
    assert bench.left() == []


@pytest.mark.parametrize(
    ("number", "says"), [(errno.ENOSPC, "disk is full"), (errno.EROFS, "may not be written"), (errno.EIO, "Tune again")]
)
def test_a_disk_that_refuses_the_choice_changes_nothing(bench, monkeypatch, number, says):
    def refuse(_self, _choice):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Choices, "keep", refuse)
    with pytest.raises(TuningFailed, match=says):
        bench.tuner().run()
    monkeypatch.undo()
    assert bench.used() is None
    Choices(bench.folder).sweep()
    assert bench.left() == []


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="this account may write everywhere")
def test_a_folder_that_may_not_be_written_is_named(bench):
    bench.folder.mkdir(mode=0o500)
    with pytest.raises(TuningFailed, match=r"may not be written.*--data-dir"):
        bench.tuner().run()


def test_a_folder_that_cannot_be_made_is_named(bench):
    bench.folder.write_text("a file is in the way")
    with pytest.raises(TuningFailed, match="tuned"):
        bench.tuner().run()


def test_a_source_that_vanishes_is_named(bench):
    def remove(job):
        if isinstance(job, Measure):
            bench.source.unlink(missing_ok=True)

    bench.processes.before = remove
    with pytest.raises(TuningFailed, match=r"chat\.gguf: is gone"):
        bench.tuner().run()
    assert bench.left() == []


def test_a_part_of_a_split_model_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="one part of several"):
        Bench(tmp_path, n_parts=2).tuner().run()


def test_a_second_tuning_is_refused(bench):
    other = bench.folder / f"unfinished-{os.getppid()}"
    other.mkdir(parents=True)
    with pytest.raises(TuningFailed, match=f"process {os.getppid()}"):
        bench.tuner().run()
    other.rmdir()
    Choices(bench.folder).unfinished().mkdir()
    with pytest.raises(TuningFailed, match="in this program"):
        bench.tuner().run()
