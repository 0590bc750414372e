"""Which models are there and what they need, bringing one in, and letting it answer or staying with the present one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.base.errors import EngineFailed, ModelFileError, NotReady
from appliance.base.paths import Paths
from appliance.engine.request import EngineInfo
from appliance.metrics.capacity import Speed
from appliance.models import model_library
from appliance.models.catalogue import read_choice, write_choice
from appliance.models.model_download import OFFERS
from appliance.models.model_library import ModelLibrary, PresentModel, quality_of
from appliance.settings.schema import Settings
from appliance.tuning.choices import Choice, Choices, cpu_key, fingerprint
from tests.unit.engine.waiting import until
from tests.unit.engine_double import INFO
from tests.unit.models.test_model_file import split, write


class Shelf:
    """A data folder with its library, and an engine that does as it is told."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.paths = Paths(folder / "data")
        self.paths.prepare()
        self.present: Path | None = None
        self.error: Exception | None = None
        self.used: list[Path] = []
        self.gate = asyncio.Event()
        self.gate.set()
        running = PresentModel(lambda: self.present, lambda: None, self.use)
        self.library = ModelLibrary(Settings(**settings), self.paths, running)

    async def use(self, path: Path) -> EngineInfo:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.used.append(path)
        self.present = path
        return replace(INFO, model_name=path.stem)

    def put(self, name: str, **kind: object) -> Path:
        return write(self.paths.models / name, **kind)


@pytest.fixture
def shelf(tmp_path) -> Shelf:
    return Shelf(tmp_path)


@pytest.fixture
def free_memory(monkeypatch):
    """Sets how much memory is free."""

    def set_free(n_bytes: int) -> None:
        monkeypatch.setattr(model_library, "available_ram_bytes", lambda: n_bytes)

    set_free(10**12)
    return set_free


def test_the_one_that_answers_comes_first_then_the_largest_and_the_starter_is_always_there(shelf, starter_model):
    shelf.present = shelf.put("a.gguf")
    split(shelf.paths.models)
    (shelf.paths.models / "page.gguf").write_bytes(b"<html>" + b" " * 200)
    entries = shelf.library.entries()
    assert [entry.name for entry in entries] == ["a", starter_model.stem, "big", "page.gguf"]
    assert [entry.answers for entry in entries] == [True, False, False, False]
    assert [entry.is_starter for entry in entries] == [False, True, False, False]
    assert [entry.problem.code if entry.problem else "" for entry in entries] == ["", "", "", "web_page"]


def test_the_model_of_the_setting_is_listed_wherever_it_is(shelf, tmp_path):
    shelf.present = write(tmp_path / "elsewhere.gguf")
    assert shelf.library.entries()[0].path == shelf.present


def test_what_a_model_needs_is_compared_with_what_is_free(shelf, free_memory):
    shelf.put("a.gguf")
    (entry,) = [entry for entry in shelf.library.entries() if entry.name == "a"]
    assert entry.facts is not None
    assert entry.memory_bytes == entry.facts.memory_bytes(16, 1024)
    assert entry.fits
    free_memory(entry.memory_bytes - 1)
    assert [entry.fits for entry in shelf.library.entries() if entry.name == "a"] == [False]


def test_what_tuning_found_is_shown_in_people(shelf):
    path = shelf.put("a.gguf")
    assert shelf.library.entries()[-1].people == 0
    n_threads = model_library.thread_count(Settings().engine_config(path))
    measured = {"Q4_0": {"speed": {"prefill": 160.0, "many": 120.0, "one": 40.0}}}
    choice = Choice(fingerprint(path), cpu_key(n_threads), "cpu", "a.gguf", "Q4_0", "", "", 1.5, 0.0, measured)
    Choices(shelf.paths.tuned).keep(choice)
    (entry,) = [entry for entry in shelf.library.entries() if entry.name == "a"]
    assert (entry.form, entry.speed, entry.people) == ("Q4_0", Speed(40.0, 120.0, 160.0), 16)
    Choices(shelf.paths.tuned).keep(replace(choice, measured={}))
    assert [entry.people for entry in shelf.library.entries() if entry.name == "a"] == [0]


@pytest.mark.parametrize(
    ("speed", "people"),
    [
        (Speed(40, 120, 160), 16),  # every slot
        (Speed(40, 120, 30), 3),  # more could be written for, but their questions not read
        (Speed(40, 120, 12), 0),  # nor one's own in time
        (Speed(10, 24, 1000), 3),
        (Speed(3, 10, 1000), 0),
        (Speed(40, 30, 1000), 9),  # together no faster than alone
    ],
)
def test_comfortable_is_four_tokens_a_second_each_and_a_first_word_within_three(speed, people):
    assert speed.comfortable(16) == people
    assert all(speed.each(n, 16) >= 4 and speed.first_word_s(n, 16) < 3 for n in range(1, people + 1))


def test_together_they_get_what_was_measured_together():
    speed = Speed(40, 120, 10**9)  # questions cost nothing
    assert speed.each(1, 16) == pytest.approx(40)
    assert speed.each(16, 16) * 16 == pytest.approx(120)
    assert speed.each(32, 16) * 32 == pytest.approx(120)
    assert Speed(40, 120, 160).each(16, 16) * 16 == pytest.approx(100 / (100 / 120 + 15 / 16 * 40 / 160))


@pytest.mark.parametrize(
    ("n_weights", "quality"), [(135e6, "smallest"), (494e6, "small"), (1.5e9, "middle"), (7e9, "large")]
)
def test_every_size_has_a_word_about_quality(n_weights, quality):
    assert quality_of(int(n_weights)) == quality


def test_a_model_is_brought_in_whole_and_its_source_left_alone(shelf, tmp_path):
    (tmp_path / "stick").mkdir()
    sources = split(tmp_path / "stick", 3)
    path = shelf.library.bring(f' "{sources[0]}" ')
    assert path == shelf.paths.models / sources[0].name
    assert sorted(file.name for file in shelf.paths.models.iterdir()) == [source.name for source in sources]
    assert [source.exists() for source in sources] == [True] * 3
    assert path in [entry.path for entry in shelf.library.entries()]


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "not_absolute"), ("m.gguf", "not_absolute"), ("/no/such/m.gguf", "missing"), ("/", "folder")],
)
def test_a_path_that_leads_nowhere_is_said(shelf, text, code):
    with pytest.raises(ModelFileError) as caught:
        shelf.library.bring(text)
    assert caught.value.code == code


def test_what_is_there_is_not_written_over(shelf, tmp_path):
    there = shelf.put("m.gguf")
    content = there.read_bytes()
    with pytest.raises(ModelFileError) as caught:
        shelf.library.bring(str(write(tmp_path / "m.gguf", licence="other")))
    assert caught.value.code == "there"
    assert there.read_bytes() == content


def test_a_copy_that_fails_leaves_nothing(shelf, tmp_path, monkeypatch):
    def full(_library, _source, target):
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ModelLibrary, "_copy_file", full)
    with pytest.raises(ModelFileError, match="No space left"):
        shelf.library.bring(str(write(tmp_path / "m.gguf")))
    assert list(shelf.paths.models.iterdir()) == []


def test_a_full_disk_is_named_before_the_copy(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr(model_library, "_SPARE_BYTES", 10**18)
    with pytest.raises(ModelFileError) as caught:
        shelf.library.bring(str(write(tmp_path / "m.gguf")))
    assert caught.value.code == "disk"
    assert list(shelf.paths.models.iterdir()) == []


async def test_the_model_chosen_answers_and_is_remembered(shelf, free_memory):
    path = shelf.put("a.gguf")
    info = await shelf.library.choose(path)
    assert (info.model_name, shelf.used) == ("a", [path])
    assert read_choice(shelf.paths.model_choice, shelf.paths.models) == path
    assert shelf.library.changing_to == ""


async def test_a_setting_that_names_the_model_outlasts_the_choice(tmp_path, free_memory):
    shelf = Shelf(tmp_path, model="b.gguf")
    await shelf.library.choose(shelf.put("a.gguf"))
    assert shelf.library.is_locked
    assert not shelf.paths.model_choice.exists()


async def test_a_broken_file_never_comes_near_the_engine(shelf, starter_model, free_memory):
    half = shelf.paths.models / "half.gguf"
    with starter_model.open("rb") as whole:
        half.write_bytes(whole.read(10**7))
    with pytest.raises(ModelFileError) as caught:
        await shelf.library.choose(half)
    assert (caught.value.code, shelf.used) == ("cut_off", [])


async def test_a_model_there_is_no_memory_for_is_refused_with_both_numbers(shelf, free_memory):
    free_memory(100 * 10**6)
    with pytest.raises(ModelFileError) as caught:
        await shelf.library.choose(shelf.put("a.gguf"))
    assert caught.value.code == "memory"
    assert caught.value.values["free_mb"] == 100
    assert shelf.used == []


@pytest.mark.parametrize("error", [EngineFailed("it ended"), NotReady("restarting")])
async def test_an_engine_that_cannot_leaves_the_choice_as_it_was(shelf, free_memory, error):
    before, path = shelf.put("before.gguf"), shelf.put("a.gguf")
    write_choice(shelf.paths.model_choice, shelf.paths.models, before)
    shelf.error = error
    with pytest.raises(type(error)):
        await shelf.library.choose(path)
    assert read_choice(shelf.paths.model_choice, shelf.paths.models) == before
    assert shelf.library.changing_to == ""


async def test_one_change_at_a_time(shelf, free_memory):
    path = shelf.put("a.gguf")
    shelf.gate.clear()
    changing = asyncio.create_task(shelf.library.choose(path))
    await asyncio.sleep(0)
    assert shelf.library.changing_to == "a.gguf"
    with pytest.raises(NotReady):
        await shelf.library.choose(path)
    shelf.gate.set()
    await changing


async def test_a_change_says_how_long_it_has_taken_until_it_is_over(shelf, free_memory):
    path = shelf.put("a.gguf")
    (entry,) = [entry for entry in shelf.library.entries() if entry.path == path]
    shelf.gate.clear()
    await shelf.library.begin_change(entry.key)
    shelf.library._asked_at -= 7
    assert shelf.library.is_at_work
    assert (shelf.library.news.code, shelf.library.news.values["seconds"]) == ("changing", 7)
    shelf.gate.set()
    await until(lambda: shelf.library.news.code == "changed")
    assert not shelf.library.is_at_work
    assert "seconds" not in shelf.library.news.values


async def test_a_copy_says_how_much_of_it_is_there(shelf, tmp_path):
    source = write(tmp_path / "from-a-stick.gguf")
    shelf.library.begin_copy(str(source))
    assert (shelf.library.is_at_work, shelf.library.news.values) == (True, {"percent": 0})
    await until(lambda: shelf.library.news.code == "brought")
    assert shelf.library._n_copied == shelf.library._n_to_copy == source.stat().st_size
    assert (shelf.paths.models / source.name).read_bytes() == source.read_bytes()
    assert not shelf.library.is_at_work


def test_what_is_there_is_not_offered(shelf):
    assert shelf.library.offers() == list(OFFERS)
    shelf.put(OFFERS[0].file)
    assert shelf.library.offers() == list(OFFERS[1:])
