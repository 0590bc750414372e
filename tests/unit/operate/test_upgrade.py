"""A data folder of an older program is brought up to date, one of a newer program is refused."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from appliance.base.errors import StartFailed
from appliance.operate.upgrade import MIGRATIONS, Migration, bring_up_to_date, is_up_to_date, schema_of


def append(text: str):
    def run(data_dir: Path) -> None:
        path = data_dir / "keys.json"
        path.write_text((path.read_text() if path.exists() else "") + text)

    return run


TWO = Migration(2, ("keys.json",), append("2"))
THREE = Migration(3, ("keys.json", "answers"), append("3"))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A folder of the first program: no number."""
    (tmp_path / "keys.json").write_text("1")
    (tmp_path / "keys.json").chmod(0o600)
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "cache.db").write_text("db")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.gguf").write_text("GGUF")
    return tmp_path


def test_steps_run_in_order_each_once(data_dir):
    assert not is_up_to_date(data_dir, (TWO, THREE))
    bring_up_to_date(data_dir, (TWO, THREE))
    assert (data_dir / "keys.json").read_text() == "123"
    assert schema_of(data_dir) == 3
    bring_up_to_date(data_dir, (TWO, THREE))
    assert (data_dir / "keys.json").read_text() == "123"
    assert is_up_to_date(data_dir, (TWO, THREE))


def test_only_the_missing_steps_run(data_dir):
    bring_up_to_date(data_dir, (TWO,))
    bring_up_to_date(data_dir, (TWO, THREE))
    assert (data_dir / "keys.json").read_text() == "123"


def test_what_a_step_touches_is_backed_up_first_and_for_the_account_alone(data_dir):
    bring_up_to_date(data_dir, (TWO, THREE))
    first, second = data_dir / "backup-of-schema-1", data_dir / "backup-of-schema-2"
    assert [path.name for path in first.iterdir()] == ["keys.json"]
    assert (first / "keys.json").read_text() == "1"
    assert (second / "keys.json").read_text() == "12"
    assert (second / "answers" / "cache.db").read_text() == "db"
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    assert stat.S_IMODE((first / "keys.json").stat().st_mode) == 0o600
    assert list(data_dir.glob("backup*.*")) == []


@pytest.mark.parametrize("cause", [OSError(28, "No space left on device"), ValueError("odd")])
def test_a_step_that_fails_is_undone_and_the_start_refused(data_dir, cause):
    def fail(folder: Path) -> None:
        (folder / "keys.json").write_text("half")
        (folder / "new").mkdir()
        raise cause

    with pytest.raises(StartFailed, match=r"from schema 1 to 3 .*it is as it was"):
        bring_up_to_date(data_dir, (TWO, Migration(3, ("keys.json", "new"), fail)))
    assert (data_dir / "keys.json").read_text() == "12"
    assert not (data_dir / "new").exists()
    assert schema_of(data_dir) == 2


def test_a_step_that_was_cut_off_begins_again_from_what_was_before_it(data_dir):
    def cut_off(folder: Path) -> None:
        (folder / "keys.json").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring_up_to_date(data_dir, (Migration(2, ("keys.json",), cut_off),))
    assert schema_of(data_dir) == 1
    bring_up_to_date(data_dir, (TWO,))
    assert (data_dir / "keys.json").read_text() == "12"


def test_an_old_back_up_gives_way_to_the_one_of_this_time(data_dir):
    bring_up_to_date(data_dir, (TWO,))
    (data_dir / "schema").unlink()  # the owner went back to the older program, which knows no number
    (data_dir / "keys.json").write_text("later")
    bring_up_to_date(data_dir, (TWO,))
    assert (data_dir / "keys.json").read_text() == "later2"
    assert (data_dir / "backup-of-schema-1" / "keys.json").read_text() == "later"


def test_an_older_program_refuses_with_a_sentence_and_changes_nothing(data_dir):
    bring_up_to_date(data_dir, (TWO, THREE))
    with pytest.raises(StartFailed, match=r"newer version of Office Chat .*schema is 3, this program knows 2"):
        bring_up_to_date(data_dir, (TWO,))
    assert schema_of(data_dir) == 3
    assert (data_dir / "keys.json").read_text() == "123"


def test_a_number_that_is_none_is_named(data_dir):
    (data_dir / "schema").write_text("two")
    with pytest.raises(StartFailed, match="schema: cannot be read as a number"):
        bring_up_to_date(data_dir, (TWO,))


def test_a_fresh_folder_gets_this_programs_number(tmp_path):
    bring_up_to_date(tmp_path)
    assert (tmp_path / "schema").read_text() == f"{MIGRATIONS[-1].number if MIGRATIONS else 1}\n"


def test_the_programs_own_steps_have_no_gap():
    assert [step.number for step in MIGRATIONS] == list(range(2, 2 + len(MIGRATIONS)))
