"""API keys: shown once, kept as digests, revoked by name, changed beside the running program."""

from __future__ import annotations

import os
import stat
import sys

import pytest

from appliance.access.api_keys import ApiKeys, KeyNameError
from appliance.base.errors import StartFailed
from appliance.base.private_file import PrivateRecord


def test_a_key_names_its_owner_until_it_is_revoked(tmp_path):
    path = tmp_path / "keys.json"
    command, program = ApiKeys(path, today=lambda: "2026-01-02"), ApiKeys(path)
    assert program.name_of("oc_anything") is None
    ann = command.add("Ann's laptop")
    bob = command.add("bob")
    assert (program.name_of(ann), program.name_of(bob)) == ("Ann's laptop", "bob")
    assert [(key.name, key.made) for key in program.listed()] == [("Ann's laptop", "2026-01-02"), ("bob", "2026-01-02")]
    assert ann.startswith(program.listed()[0].start)
    command.revoke("Ann's laptop")
    assert (program.name_of(ann), program.name_of(bob)) == (None, "bob")


def test_the_file_holds_no_key_and_is_its_owners_alone(tmp_path):
    path = tmp_path / "keys.json"
    key = ApiKeys(path).add("ann")
    assert key not in path.read_text()
    assert key[12:] not in path.read_text()
    assert len(key) > 43
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["", " ann", "a/b", "a" * 65, "a\nb", "<b>"])
def test_a_bad_name_is_refused(tmp_path, name):
    with pytest.raises(KeyNameError):
        ApiKeys(tmp_path / "keys.json").add(name)


def test_a_name_is_given_once_and_only_a_known_one_is_revoked(tmp_path):
    keys = ApiKeys(tmp_path / "keys.json")
    keys.add("ann")
    with pytest.raises(KeyNameError, match="ann already"):
        keys.add("ann")
    with pytest.raises(KeyNameError, match="no key named bob"):
        keys.revoke("bob")


@pytest.mark.parametrize("content", ["{", "[]", "", "\xff"])
def test_a_damaged_file_is_no_empty_list(tmp_path, content):
    path = tmp_path / "keys.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(StartFailed, match=r"keys\.json"):
        ApiKeys(path).name_of("oc_x")


def test_a_record_is_read_again_only_when_it_changed(tmp_path):
    path = tmp_path / "record.json"
    record = PrivateRecord(path)
    assert record.read() == {}
    record.write({"a": 1})
    first = record.read()
    assert record.read() is first
    os.utime(path, ns=(1, 1))
    assert record.read() == first
    path.unlink()
    assert record.read() == {}
