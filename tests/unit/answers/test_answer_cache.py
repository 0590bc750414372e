"""Saved answers: who gets them, how long, and that no disk ever stops a chat."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.answers.answer_cache import AnswerCache, SavedAnswer
from tests.unit.engine_double import Clock

ROOT = Path(__file__).resolve().parents[3]


@asynccontextmanager
async def opened(folder: Path, **changes: object) -> AsyncIterator[AnswerCache]:
    clock = changes.pop("clock", None) or Clock()
    cache = AnswerCache(folder, **{"limit_bytes": 2**20, "ttl_s": 1800, "wall_clock": clock, **changes})
    try:
        yield cache
    finally:
        await cache.close()


def answer(text: str = "A tax.") -> SavedAnswer:
    return SavedAnswer(text, (1, 2), saved_at=1000.0, n_prompt=10)


async def written(cache: AnswerCache) -> None:
    """Until everything is on the disk, so that it is read from there."""
    await asyncio.wrap_future(cache._submit(lambda: None))
    await asyncio.sleep(0)


async def test_an_answer_is_there_at_once_and_later_from_the_disk(tmp_path):
    async with opened(tmp_path) as cache:
        cache.put("d", answer(), ["ann"], "q")
        assert (await cache.find("d", "bob", "q")).text == "A tax."
    async with opened(tmp_path) as cache:
        found = await cache.find("d", "bob", "q")
        assert (found.text, found.token_ids, found.saved_at) == ("A tax.", (1, 2), 1000.0)
        assert await cache.find("other", "bob", "q") is None


async def test_it_is_given_for_its_ttl_and_no_longer(tmp_path):
    clock = Clock()
    async with opened(tmp_path, clock=clock) as cache:
        cache.put("d", answer(), ["ann"], "q")
        await written(cache)
        clock.now += 1799
        assert await cache.find("d", "bob", "q") is not None
        clock.now += 1
        assert await cache.find("d", "bob", "q") is None


async def test_what_is_past_its_time_leaves_the_disk(tmp_path):
    async with opened(tmp_path, ttl_s=0.2) as cache:
        cache.put("d", answer("a secret answer"), ["ann"], "q")
        await written(cache)
        await asyncio.sleep(0.3)
        cache.sweep()
        await written(cache)
    assert rows(tmp_path) == []


async def test_the_owner_sees_what_three_people_asked_and_the_disk_no_earlier_question(tmp_path):
    async with opened(tmp_path) as cache:
        cache.put("d", answer(), ["ann"], "What is VAT?")
        for person in ("ann", "bob", "bob"):
            await cache.find("d", person, "What is VAT?")
        await written(cache)
        assert await cache.entries() == {}
        assert b"VAT" not in database(tmp_path)
        await cache.find("d", "eve", "What is VAT?")
        await written(cache)
        (entry,) = (await cache.entries()).values()
        assert (entry.question, len(entry.persons)) == ("What is VAT?", 3)
        assert b"ann" not in database(tmp_path)


async def test_the_same_person_has_another_digest_in_another_cache(tmp_path):
    digests = set()
    for name in ("one", "two"):
        async with opened(tmp_path / name) as cache:
            cache.put("d", answer(), ["ann"], "q")
            digests.add(cache._fresh["d"].persons)
    assert len(digests) == 2


async def test_forgetting_a_person_drops_what_only_they_asked(tmp_path):
    async with opened(tmp_path) as cache:
        cache.put("hers", answer(), ["ann"], "q")
        cache.put("everybodys", answer(), ["ann", "bob"], "q")
        await written(cache)
        cache.put("fresh", answer(), ["ann"], "q")
        cache.forget("ann")
        found = [await cache.find(digest, "eve", "q") for digest in ("hers", "fresh", "everybodys")]
        assert [entry is not None for entry in found] == [False, False, True]


async def test_a_pinned_answer_stays_and_a_corrected_one_is_given_instead(tmp_path):
    clock = Clock()
    async with opened(tmp_path, clock=clock) as cache:
        cache.put("d", answer(), ["a", "b", "c"], "What is VAT?")
        cache.put("few", answer(), ["a"], "q")
        await written(cache)
        with pytest.raises(KeyError):
            await cache.pin("few")
        await cache.pin("d", "Value added tax.")
        cache.put("d", answer("afresh"), ["ann"], "What is VAT?")
        clock.now += 10**6
    async with opened(tmp_path, clock=clock) as cache:
        found = await cache.find("d", "ann", "What is VAT?")
        assert (found.text, found.token_ids, found.is_pinned) == ("Value added tax.", (), True)
        assert list(await cache.entries()) == ["d"]
        await cache.delete("d")
        assert await cache.find("d", "ann", "What is VAT?") is None
    assert oct((tmp_path / "pinned.json").stat().st_mode & 0o777) == "0o600"


async def test_asking_afresh_replaces_an_answer(tmp_path):
    async with opened(tmp_path) as cache:
        cache.put("d", answer("old"), ["ann"], "q")
        cache.put("d", answer("new"), ["ann"], "q")
        await written(cache)
        assert (await cache.find("d", "ann", "q")).text == "new"


# -- case 50: damaged, read-only, in the way -----------------------------------------------------------------------


async def test_a_damaged_file_is_moved_aside_and_a_new_one_begun(tmp_path, caplog):
    async with opened(tmp_path) as cache:
        cache.put("d", answer(), ["ann"], "q")
    with (tmp_path / "saved" / "cache.db").open("r+b") as file:
        file.write(b"\xa5noise" * 700)
    for name in ("cache.db-wal", "cache.db-shm"):
        (tmp_path / "saved" / name).unlink(missing_ok=True)
    async with opened(tmp_path) as cache:
        assert await cache.find("d", "ann", "q") is None
        cache.put("e", answer(), ["ann"], "q")
    async with opened(tmp_path) as cache:
        assert await cache.find("e", "ann", "q") is not None
    assert (tmp_path / "saved.damaged" / "cache.db").read_bytes().startswith(b"\xa5noise")
    assert caplog.text.count("damaged") == 2, "one warning, which names the folder"


async def test_a_file_damaged_while_it_is_open_is_moved_aside(tmp_path):
    async with opened(tmp_path) as cache:
        for number in range(300):
            cache.put(f"d{number}", answer("x" * 2000), ["ann"], "q")
            if number % 50 == 0:
                await written(cache)
        await written(cache)
        with sqlite3.connect(tmp_path / "saved" / "cache.db") as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = (tmp_path / "saved" / "cache.db").stat().st_size
        (tmp_path / "saved" / "cache.db").write_bytes(b"\xa5" * size)
        for number in range(20):
            await cache.find(f"d{number}", "ann", "q")
        cache.put("e", answer(), ["ann"], "q")
        await written(cache)
        assert (await cache.find("e", "ann", "q")).text == "A tax."


@pytest.mark.parametrize("name", ["", "saved/cache.db"])
async def test_an_empty_file_or_one_in_the_way_stops_nothing(tmp_path, name):
    path = tmp_path / "answers" / name if name else tmp_path / "answers"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    async with opened(tmp_path / "answers") as cache:
        cache.put("d", answer(), ["ann"], "q")
        await written(cache)
        found = await cache.find("d", "ann", "q")
        assert (found is not None) is bool(name)


async def test_a_locked_file_costs_the_saved_answer_only(tmp_path):
    async with opened(tmp_path) as cache:
        cache.put("d", answer(), ["ann"], "q")
        await written(cache)
        other = sqlite3.connect(tmp_path / "saved" / "cache.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        cache.put("e", answer(), ["ann"], "q")
        assert (await cache.find("e", "ann", "q")).text == "A tax.", "it waits for the disk in memory"
        await written(cache)
        other.execute("ROLLBACK")
        other.close()
        assert await cache.find("d", "ann", "q") is not None


async def test_a_disk_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("appliance.answers.answer_cache.FIND_S", 0.01)
    async with opened(tmp_path) as cache:
        cache.put("d", answer(), ["ann"], "q")
        await written(cache)
        let_go = asyncio.Event()
        loop = asyncio.get_running_loop()
        cache._submit(lambda: asyncio.run_coroutine_threadsafe(let_go.wait(), loop).result())
        assert await cache.find("d", "ann", "q") is None
        let_go.set()


FULL = """
import asyncio, resource, sys
from pathlib import Path
from appliance.answers.answer_cache import AnswerCache, SavedAnswer

async def main():
    cache = AnswerCache(Path(sys.argv[1]), limit_bytes=2**24, ttl_s=1800)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    import time
    for number in range(200):
        cache.put(f"d{number}", SavedAnswer("x" * 5000, (), time.time(), 1), ["ann"], "q")
        await cache.find(f"d{number}", "bob", "q")
        await asyncio.sleep(0.002)
    await cache.close()
    print("went on")

asyncio.run(main())
"""


def test_a_full_disk_stops_nothing(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert run.stdout == "went on\n", run.stderr
    assert "refused" in run.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE) != (200_000, 200_000)


# -- cases 51 and 52 ------------------------------------------------------------------------------------------------


async def test_three_megabytes_settle_within_a_limit_of_one(tmp_path):
    async with opened(tmp_path) as cache:
        for number in range(300):
            cache.put(f"d{number}", replace(answer("x" * 10_000), token_ids=()), ["ann"], "q")
            await written(cache)
        n_bytes = await asyncio.wrap_future(cache._submit(lambda: cache._disk._cache.volume()))
    assert n_bytes <= 1.2 * 2**20


async def test_nothing_is_pickled_and_only_this_account_can_look(tmp_path):
    async with opened(tmp_path) as cache:
        for number in range(20):
            cache.put(f"d{number}", answer("x" * (number * 5000)), ["ann"], "q")
        await written(cache)
    assert len(rows(tmp_path)) == 20
    assert {(mode == 4, raw) for mode, raw in rows(tmp_path)} == {(False, 1)}
    assert oct((tmp_path / "saved").stat().st_mode & 0o777) == "0o700"


async def test_a_pickle_somebody_put_there_is_never_opened(tmp_path):
    async with opened(tmp_path) as cache:
        cache.put("d", answer(), ["ann"], "q")
    trap = b"cos\nsystem\n(S'touch " + str(tmp_path / "trapped").encode() + b"'\ntR."
    with sqlite3.connect(tmp_path / "saved" / "cache.db") as database:
        database.execute("UPDATE Cache SET mode = 4, value = ?", (trap,))
        database.execute(
            "INSERT INTO Cache (key, raw, store_time, access_time, size, mode, value) VALUES (?, 0, 1, 1, 1, 1, 1)",
            (trap,),
        )
    async with opened(tmp_path) as cache:
        assert await cache.find("d", "ann", "q") is None
        assert await cache.entries() == {}
    assert not (tmp_path / "trapped").exists()


def database(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (folder / "saved").rglob("*") if path.is_file())


def rows(folder: Path) -> list[tuple[int, int]]:
    """How every row is kept: mode of the value (4 is a pickle) and whether the key is plain."""
    with sqlite3.connect(folder / "saved" / "cache.db") as connection:
        return connection.execute("SELECT mode, raw FROM Cache").fetchall()
