"""What tuning found is found again, and only where it is still right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from appliance.engine.config import EngineConfig
from appliance.engine.cpu import cpu_identity, thread_count
from appliance.tuning.choices import Choice, Choices, cpu_key, fingerprint, tuned_file

N_THREADS = 2
BOUND = 0.1


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "models" / "qwen.gguf"
    path.parent.mkdir()
    path.write_bytes(os.urandom(3_000_000))
    return path


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "tuned"


@pytest.fixture
def kept(source, folder):
    """A choice with its file."""
    file = folder / "abc-Q4_0" / source.name
    file.parent.mkdir(parents=True)
    file.write_bytes(b"GGUF tuned")
    choice = Choice(
        model=fingerprint(source),
        cpu=cpu_key(N_THREADS),
        cpu_name="a CPU",
        source_name=source.name,
        form="Q4_0",
        file=file.relative_to(folder).as_posix(),
        file_fingerprint=fingerprint(file),
        gain=1.9,
        kl=0.05,
        measured={},
    )
    Choices(folder).keep(choice)
    return choice


def found(source, folder, n_threads=N_THREADS, bound=BOUND):
    return tuned_file(source, folder, n_threads, bound)


def test_the_tuned_file_is_used_for_its_model_on_its_cpu(source, folder, kept):
    assert found(source, folder) == folder / kept.file


def test_without_any_choice_the_source_is_used(source, folder):
    assert found(source, folder) is None


def test_the_choice_follows_a_source_that_was_moved_or_copied(source, folder, kept):
    moved = source.rename(source.with_name("renamed.gguf"))
    assert found(moved, folder) == folder / kept.file


@pytest.mark.parametrize("place", [0, 1_500_000, 2_999_999])
def test_a_changed_source_is_used_itself(source, folder, kept, place):
    data = bytearray(source.read_bytes())
    at = place // (3_000_000 // 64) * (3_000_000 // 64) if place else 0  # the samples begin there
    data[at] ^= 1
    source.write_bytes(data)
    assert found(source, folder) is None


def test_another_number_of_threads_is_another_computer(source, folder, kept):
    assert found(source, folder, n_threads=N_THREADS + 1) is None


def test_another_cpu_is_another_computer(source, folder, kept, monkeypatch):
    monkeypatch.setattr("appliance.tuning.choices.cpu_identity", lambda: ("another", "another with fewer flags"))
    assert found(source, folder) is None


def test_a_tuned_file_that_is_gone_or_changed_is_not_used(source, folder, kept, caplog):
    (folder / kept.file).write_bytes(b"GGUF tuneD")
    assert found(source, folder) is None
    (folder / kept.file).unlink()
    assert found(source, folder) is None
    assert "tune again" in caplog.text


def test_a_bound_that_was_lowered_since_counts(source, folder, kept):
    assert found(source, folder, bound=0.04) is None


def test_a_source_that_was_the_best_is_used(source, folder, kept):
    Choices(folder).keep(replace(kept, form="source", file="", file_fingerprint=""))
    assert found(source, folder) is None
    assert len(Choices(folder).all()) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 1, "choices": [{}]}', "\xff"])
def test_a_damaged_list_is_no_choice_and_costs_no_file(source, folder, kept, text):
    (folder / "choices.json").write_bytes(text.encode("latin-1"))
    assert found(source, folder) is None
    Choices(folder).sweep()
    assert (folder / kept.file).exists()


def test_choices_of_several_models_stand_side_by_side(source, folder, kept):
    other = replace(kept, model="another")
    Choices(folder).keep(other)
    assert sorted(choice.model for choice in Choices(folder).all()) == sorted([kept.model, "another"])
    assert json.loads((folder / "choices.json").read_text())["version"] == 1
    assert [path.name for path in folder.glob("choices*")] == ["choices.json"]


def test_what_an_interrupted_tuning_left_is_swept(folder, kept):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left = folder / f"unfinished-{int(ended.stdout)}"
    left.mkdir()
    (left / "Q4_0.gguf").write_bytes(b"half")
    stray = folder / "def-Q8_0" / "old.gguf"
    stray.parent.mkdir()
    stray.write_bytes(b"nobody names it")
    Choices(folder).sweep()
    assert sorted(path.name for path in folder.iterdir()) == ["abc-Q4_0", "choices.json"]
    assert (folder / kept.file).exists()


def test_a_tuning_that_runs_is_left_alone(folder, kept):
    running = folder / f"unfinished-{os.getppid()}"
    running.mkdir()
    stray = folder / "def-Q8_0" / "just-moved.gguf"
    stray.parent.mkdir()
    stray.write_bytes(b"its choice comes in a moment")
    assert Choices(folder).running() == os.getppid()
    Choices(folder).sweep()
    assert running.exists()
    assert stray.exists()


def test_a_process_that_took_over_the_number_is_no_tuning(folder, kept):
    left = folder / f"unfinished-{os.getppid()}"
    left.mkdir()
    os.utime(left, (1000, 1000))  # long before that process began
    assert Choices(folder).running() is None
    Choices(folder).sweep()
    assert not left.exists()


def test_a_folder_without_anything_is_no_trouble(folder):
    Choices(folder).sweep()
    assert not folder.exists()


def test_the_cpu_is_known_by_name_and_instructions(tmp_path):
    text = (
        "processor\t: 0\nmodel name\t: Fast One\nflags\t\t: avx2 fma\ncpu MHz\t: {}\n\nprocessor\t: 1\nflags\t: avx2\n"
    )
    (tmp_path / "a").write_text(text.format(1000))
    (tmp_path / "b").write_text(text.format(2000))
    (tmp_path / "c").write_text(text.format(1000).replace("avx2", "avx2 avx512f"))
    assert cpu_identity(tmp_path / "a") == cpu_identity(tmp_path / "b")
    assert cpu_identity(tmp_path / "a")[0] == "Fast One"
    assert cpu_identity(tmp_path / "a") != cpu_identity(tmp_path / "c")
    assert cpu_identity(tmp_path / "missing")[0]


def test_threads_are_what_the_engine_will_use():
    assert thread_count(EngineConfig(n_threads=3)) == 3
    assert thread_count(EngineConfig(cores=(0,))) == 1
    assert thread_count(EngineConfig()) >= 1
