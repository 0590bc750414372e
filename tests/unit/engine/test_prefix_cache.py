"""Parked conversations: whose they are, how long they live, where they are kept."""

from __future__ import annotations

import os
import sqlite3
import stat
import time

import diskcache
import numpy as np
import pytest

from appliance.engine.parked_disk import DiskShelf
from appliance.engine.prefix_cache import KvState, Owner, PrefixCache

ANN = Owner.of("ann", "tab")
BOB = Owner.of("bob", "tab")
KB = 1024


class WallClock:
    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> WallClock:
    return WallClock(2e9)  # long after any real expiry that diskcache compares with


@pytest.fixture
def shelf(tmp_path):
    opened: list[DiskShelf] = []

    def open_shelf(fingerprint: str = "model", limit_bytes: int = 2**24) -> DiskShelf:
        opened.append(DiskShelf(tmp_path / "kv", fingerprint, limit_bytes=limit_bytes))
        return opened[-1]

    yield open_shelf
    for one in opened:
        one.close()


def data(fill: int, n_bytes: int = KB) -> np.ndarray:
    return np.full(n_bytes, fill, dtype=np.uint8)


def cache(clock, shelf=None, ram_bytes: int = 10 * KB, ttl_s: float = 1800) -> PrefixCache:
    return PrefixCache(ram_bytes=ram_bytes, ttl_s=ttl_s, shelf=shelf, wall_clock=clock)


def ids(owner_state: KvState | None) -> list[int] | None:
    return None if owner_state is None else owner_state.token_ids.tolist()


def test_a_parked_conversation_is_handed_out_once(clock):
    parked = cache(clock)
    parked.park(ANN, [1, 2, 3], data(1))
    assert parked.n_reusable(ANN, [1, 2, 9, 9]) == 2
    assert ids(parked.take(ANN)) == [1, 2, 3]
    assert parked.take(ANN) is None
    assert parked.n_bytes == 0


def test_nobody_gets_somebody_elses(clock):
    parked = cache(clock)
    parked.park(ANN, [1, 2, 3], data(1))
    assert parked.take(BOB) is None
    assert parked.n_reusable(BOB, [1, 2, 3]) == 0
    assert Owner.of("a", "b\0c") != Owner.of("a\0b", "c")


@pytest.mark.parametrize("on_disk", [False, True])
def test_states_under_crossed_keys_are_refused(clock, shelf, on_disk):
    """The key alone is not believed: every state says itself whose it is."""
    parked = cache(clock, shelf(), ram_bytes=0 if on_disk else 10 * KB)
    parked.park(ANN, [1, 2, 3], data(1))
    parked.park(BOB, [1, 2, 3], data(2))
    if on_disk:
        cross_on_disk(parked._shelf)
    else:
        states = parked._parked
        states[ANN.conversation], states[BOB.conversation] = states[BOB.conversation], states[ANN.conversation]
    assert parked.n_reusable(ANN, [1, 2, 3]) in (0, 3)  # a look may be wrong, what is handed out may not
    assert parked.take(ANN) is None
    assert parked.take(BOB) is None


def cross_on_disk(shelf) -> None:
    wait_written(shelf)
    store = shelf._cache
    ann, bob = store.get(ANN.conversation), store.get(BOB.conversation)
    store.set(ANN.conversation, bob)
    store.set(BOB.conversation, ann)


def wait_written(shelf: DiskShelf) -> None:
    for _ in range(500):
        with shelf._lock:
            if not shelf._pending:
                return
        shelf._writer.join(0.01)
    raise AssertionError("not written within 5 s")


def test_the_time_to_live_ends_it_in_ram(clock):
    parked = cache(clock, ttl_s=60)
    parked.park(ANN, [1], data(1))
    clock.now_s += 61
    assert parked.take(ANN) is None
    parked.park(BOB, [1], data(1))
    clock.now_s += 61
    parked.sweep()
    assert len(parked) == 0
    assert parked.n_bytes == 0


def test_ram_is_bounded_and_the_oldest_goes_first(clock):
    parked = cache(clock, ram_bytes=3 * KB)
    owners = [Owner.of(f"p{i}", "tab") for i in range(5)]
    for owner in owners:
        parked.park(owner, [1], data(1))
        assert parked.n_bytes <= 3 * KB
    assert [parked.take(owner) is not None for owner in owners] == [False, False, True, True, True]


def test_what_ram_has_no_room_for_comes_back_from_disk(clock, shelf):
    parked = cache(clock, shelf(), ram_bytes=KB)
    parked.park(ANN, [1, 2, 3], data(1))
    parked.park(BOB, [4, 5], data(2))
    wait_written(parked._shelf)
    assert parked.n_reusable(ANN, [1, 2, 3, 4]) == 3
    state = parked.take(ANN)
    assert ids(state) == [1, 2, 3]
    assert state.data.tobytes() == data(1).tobytes()
    assert parked.take(ANN) is None


def test_it_is_readable_while_it_is_still_being_written(clock, shelf):
    parked = cache(clock, shelf(), ram_bytes=0)
    parked.park(ANN, [1, 2, 3], data(1, 2**20))
    assert ids(parked.take(ANN)) == [1, 2, 3]
    wait_written(parked._shelf)
    assert parked.take(ANN) is None


def test_a_conversation_outlives_the_program(clock, shelf):
    first = cache(clock, shelf())
    first.park(ANN, [1, 2, 3], data(1))
    first.close()
    second = cache(clock, shelf())
    assert ids(second.take(ANN)) == [1, 2, 3]


def test_a_conversation_that_was_copied_when_idle_survives_a_kill(clock, shelf):
    first = cache(clock, shelf())
    first.park(ANN, [1, 2, 3], data(1))
    assert first.persist_one()
    assert not first.persist_one()
    wait_written(first._shelf)
    second = cache(clock, shelf())
    assert ids(second.take(ANN)) == [1, 2, 3]


def test_a_new_turn_replaces_the_copy_on_disk(clock, shelf):
    parked = cache(clock, shelf())
    parked.park(ANN, [1, 2, 3], data(1))
    parked.persist_one()
    wait_written(parked._shelf)
    assert ids(parked.take(ANN)) == [1, 2, 3]
    assert parked.take(ANN) is None, "the copy on disk was left behind"


def test_the_time_to_live_ends_it_on_disk_by_the_wall_clock(shelf):
    clock = WallClock(time.time())
    first = cache(clock, shelf(), ttl_s=0.3)
    first.park(ANN, [1, 2, 3], data(1))
    first.close()
    clock.now_s += 1
    time.sleep(0.4)
    second_shelf = shelf()
    assert len(second_shelf._cache) == 0, "swept at the start"
    assert cache(clock, second_shelf).take(ANN) is None


@pytest.mark.parametrize("on_disk", [False, True])
def test_forgetting_a_person_forgets_all_of_theirs_and_nobody_elses(clock, shelf, on_disk):
    parked = cache(clock, shelf(), ram_bytes=0 if on_disk else 10 * KB)
    other_tab = Owner.of("ann", "other")
    for owner in (ANN, other_tab, BOB):
        parked.park(owner, [1, 2], data(1))
    if on_disk:
        wait_written(parked._shelf)
    parked.drop_person(Owner.of("ann", ""))
    assert parked.take(ANN) is None
    assert parked.take(other_tab) is None
    assert parked.take(BOB) is not None


@pytest.mark.parametrize("on_disk", [False, True])
def test_forgetting_a_conversation_leaves_the_persons_others(clock, shelf, on_disk):
    parked = cache(clock, shelf(), ram_bytes=0 if on_disk else 10 * KB)
    other_tab = Owner.of("ann", "other")
    parked.park(ANN, [1, 2], data(1))
    parked.park(other_tab, [1, 2], data(1))
    parked.drop_conversation(ANN)
    assert parked.take(ANN) is None
    assert parked.take(other_tab) is not None


def test_states_of_another_model_are_deleted(clock, shelf, tmp_path):
    first = cache(clock, shelf("a model"))
    first.park(ANN, [1, 2], data(1))
    first.close()
    second = cache(clock, shelf("another model"))
    assert second.take(ANN) is None
    assert [path.name for path in (tmp_path / "kv").iterdir()] == ["another model"]


def test_only_this_account_can_read_the_files(clock, shelf, tmp_path):
    old = os.umask(0o077)  # as the engine process does
    try:
        parked = cache(clock, shelf(), ram_bytes=0)
        parked.park(ANN, [1, 2], data(1, 2**17))
        wait_written(parked._shelf)
    finally:
        os.umask(old)
    files = [path for path in (tmp_path / "kv").rglob("*") if path.is_file()]
    assert any(path.suffix == ".val" for path in files)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "kv").stat().st_mode) == 0o700


def test_nothing_on_disk_is_a_pickle_or_says_who_somebody_is(clock, shelf, tmp_path):
    parked = cache(clock, shelf(), ram_bytes=0)
    parked.park(Owner.of("ann@office", "my tab"), [1, 2], data(1))
    wait_written(parked._shelf)
    database = sqlite3.connect(next((tmp_path / "kv").rglob("cache.db")))
    assert database.execute("SELECT count(*) FROM Cache WHERE mode = 4").fetchone() == (0,)
    database.close()
    everything = b"".join(path.read_bytes() for path in (tmp_path / "kv").rglob("*") if path.is_file())
    assert b"ann@office" not in everything
    assert b"my tab" not in everything


def test_a_pickle_somebody_put_there_is_never_opened(clock, shelf, tmp_path):
    parked = cache(clock, shelf(), ram_bytes=0)
    parked.park(ANN, [1, 2], data(1))
    wait_written(parked._shelf)
    trap = b"cos\nsystem\n(S'touch " + str(tmp_path / "trapped").encode() + b"'\ntR."
    with sqlite3.connect(next((tmp_path / "kv").rglob("cache.db"))) as database:
        assert database.execute("UPDATE Cache SET mode = 4, value = ?", (trap,)).rowcount == 1
    database.close()
    assert parked._shelf.peek(ANN) is None
    assert parked.take(ANN) is None
    assert not (tmp_path / "trapped").exists()


def test_a_damaged_store_is_replaced(clock, shelf, tmp_path):
    (tmp_path / "kv" / "model").mkdir(parents=True)
    (tmp_path / "kv" / "model" / "cache.db").write_bytes(bytes(range(256)) * 64)
    parked = cache(clock, shelf(), ram_bytes=0)
    parked.park(ANN, [1, 2], data(1))
    wait_written(parked._shelf)
    assert ids(parked.take(ANN)) == [1, 2]


def test_a_store_that_is_locked_is_left_alone(clock, shelf, tmp_path, monkeypatch):
    parked = cache(clock, shelf(), ram_bytes=0)
    parked.park(ANN, [1, 2], data(1))
    wait_written(parked._shelf)
    parked.close()
    opens = diskcache.Cache

    def locked(*_args, **_options):
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(diskcache, "Cache", locked)
    with pytest.raises(OSError, match="cannot be opened now"):
        shelf()
    monkeypatch.setattr(diskcache, "Cache", opens)
    assert ids(cache(clock, shelf(), ram_bytes=0).take(ANN)) == [1, 2]


def test_a_damaged_state_is_no_state(clock, shelf, tmp_path):
    parked = cache(clock, shelf(), ram_bytes=0)
    parked.park(ANN, [1, 2], data(1, 2**17))
    wait_written(parked._shelf)
    next((tmp_path / "kv").rglob("*.val")).write_bytes(b"no such thing")
    assert parked.n_reusable(ANN, [1, 2]) == 0
    assert parked.take(ANN) is None


def test_the_disk_is_bounded(clock, shelf):
    one_mb = 2**20
    parked = cache(clock, shelf(limit_bytes=4 * one_mb), ram_bytes=0)
    for i in range(12):
        parked.park(Owner.of(f"p{i}", "tab"), [1], data(1, one_mb))
    wait_written(parked._shelf)
    assert parked._shelf._cache.volume() <= 5 * one_mb


def test_system_prompts_are_kept_for_everybody_but_not_without_end(clock):
    parked = cache(clock)
    for i in range(20):
        parked.share([i, i + 1], data(i))
    assert parked.shared([0, 1]) is None
    assert ids(parked.shared([19, 20])) == [19, 20]
    assert parked.shared([19]) is None


def test_what_expires_on_disk_goes_without_anybody_writing_or_asking(shelf, monkeypatch):
    monkeypatch.setattr("appliance.engine.parked_disk.SWEEP_S", 0.05)
    parked = cache(WallClock(time.time()), shelf(), ram_bytes=0, ttl_s=0.3)
    parked.park(ANN, [1, 2, 3], data(1, 2**17))
    wait_written(parked._shelf)
    deadline_s = time.monotonic() + 5
    while len(parked._shelf._cache) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert len(parked._shelf._cache) == 0
