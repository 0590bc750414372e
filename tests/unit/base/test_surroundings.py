"""Paths, log and network: the program's surroundings."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from appliance.base.errors import StartFailed
from appliance.base.log import open_log, where
from appliance.base.paths import Paths, default_data_dir
from appliance.network.interfaces import Adapter, lan_addresses, office_adapters

HOME = Path("/home/u")


@pytest.mark.parametrize(
    ("platform", "env", "folder"),
    [
        ("linux", {}, "/home/u/.local/share/office-chat"),
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data/office-chat"),
        ("linux", {"XDG_DATA_HOME": "relative"}, "/home/u/.local/share/office-chat"),
        ("darwin", {}, "/home/u/Library/Application Support/office-chat"),
        ("win32", {"LOCALAPPDATA": "/c/Local"}, "/c/Local/office-chat"),
        ("win32", {}, "/home/u/AppData/Local/office-chat"),
    ],
)
def test_the_data_folder_is_the_platforms_own(platform, env, folder):
    assert default_data_dir(env, platform, HOME) == Path(folder)


def test_an_account_without_a_home_is_told_to_name_a_folder(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(StartFailed, match="--data-dir"):
        default_data_dir({}, "linux")
    assert default_data_dir({"XDG_DATA_HOME": "/data"}, "linux") == Path("/data/office-chat")


def test_a_folder_with_any_name_is_prepared(tmp_path):
    paths = Paths(tmp_path / "数据　& more" / "deep")
    paths.prepare()
    assert paths.models.is_dir()
    assert paths.logs.is_dir()
    assert not list(paths.data_dir.glob(".write-test*"))


def test_a_folder_that_cannot_be_written_is_named_with_the_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StartFailed, match="--data-dir"):
        Paths(tmp_path / "file").prepare()


ADAPTERS = [
    Adapter("lo", "127.0.0.1"),
    Adapter("docker0", "172.17.0.1"),
    Adapter("eth1", "169.254.3.4"),
    Adapter("tun0", "10.8.0.2"),
    Adapter("eth0", "93.184.215.14"),
    Adapter("wlan0", "192.168.1.7"),
    Adapter("vEthernet (WSL)", "172.20.0.1"),
    Adapter("Ethernet 3", "100.101.7.8"),
    Adapter("corp", "10.9.0.2", is_tunnel=True),
    Adapter("br0", "192.168.2.7"),
]


def test_addresses_of_real_adapters_come_first_and_useless_ones_never():
    real = ["192.168.1.7", "192.168.2.7", "93.184.215.14"]
    virtual = ["172.17.0.1", "10.8.0.2", "172.20.0.1", "10.9.0.2", "100.101.7.8"]
    assert [adapter.address for adapter in office_adapters(ADAPTERS, default="")] == real + virtual
    assert lan_addresses(ADAPTERS, default="") == real


def test_the_adapter_that_leads_out_is_the_first_unless_it_is_a_vpn():
    assert lan_addresses(ADAPTERS, default="192.168.2.7")[0] == "192.168.2.7"
    assert lan_addresses(ADAPTERS, default="10.8.0.2")[0] == "192.168.1.7"


def test_addresses_of_virtual_adapters_are_better_than_none():
    assert lan_addresses([Adapter("wg0", "10.8.0.2"), Adapter("docker0", "172.17.0.1")], default="10.8.0.2") == [
        "10.8.0.2",
        "172.17.0.1",
    ]


def test_this_pc_can_be_asked():
    assert all(not address.startswith("127.") for address in lan_addresses())


@pytest.fixture
def log_path(tmp_path):
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield open_log(tmp_path)
    for handler in root.handlers[:]:
        if handler not in before:
            root.removeHandler(handler)
            handler.close()
    root.setLevel(level)


def fail(text: str) -> None:
    raise ValueError(text)


def test_a_logged_error_names_class_and_place_but_not_its_words(log_path, capsys):
    try:
        fail("my secret question")
    except ValueError:
        logging.getLogger("x").exception("it failed")
    written = log_path.read_text() + capsys.readouterr().err
    assert "ValueError at test_surroundings.py" in written
    assert "secret" not in written


def test_where_names_the_innermost_place_first():
    with pytest.raises(ValueError, match="x") as caught:
        fail("x")
    assert where(caught.value).split(" < ")[0].endswith(" fail")


def test_a_program_without_a_console_can_log(tmp_path, monkeypatch, log_path):
    monkeypatch.setattr(sys, "stderr", None)
    logging.getLogger("x").warning("heard")
    assert "heard" in log_path.read_text()
