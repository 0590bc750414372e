"""The port that stays, the addresses to hand out, their code, and what has changed since last time."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import zxingcpp
from PIL import Image

from appliance.base.errors import StartFailed
from appliance.network import front_door, local_name
from appliance.network.firewall import firewall_rule
from appliance.network.front_door import FrontDoor, qr_console, qr_picture
from appliance.network.interfaces import Adapter
from appliance.network.local_name import LocalName

URL = "http://192.168.1.20:7860"
WIRED = Adapter("eth0", "192.168.1.20")
WIRELESS = Adapter("wlan0", "192.168.1.21")
VPN = Adapter("tun0", "10.8.0.2")


@pytest.fixture
def first_port(monkeypatch):
    """A free port that is tried first, and the one after it free too."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("0.0.0.0", 0))
            port = one.getsockname()[1]
            try:
                two.bind(("0.0.0.0", port + 1))
            except OSError:
                continue
        monkeypatch.setattr(front_door, "FIRST_PORT", port)
        return port


def make(tmp_path, adapters=(WIRED,), *, host="0.0.0.0", port=0, label=""):
    return FrontDoor(tmp_path / "front-door.json", host, port, label, lambda: list(adapters))


def opened(door):
    door.open().close()
    return door


def test_the_port_chosen_at_the_first_start_is_kept(tmp_path, first_port, monkeypatch):
    assert opened(make(tmp_path)).port == first_port
    monkeypatch.setattr(front_door, "FIRST_PORT", first_port + 1)
    assert opened(make(tmp_path)).port == first_port


def test_the_first_start_passes_over_a_taken_port(tmp_path, first_port):
    with socket.socket() as other:
        other.bind(("0.0.0.0", first_port))
        other.listen()
        assert opened(make(tmp_path)).port == first_port + 1
    assert opened(make(tmp_path)).port == first_port + 1


def test_later_a_taken_port_is_named_with_the_remedy_and_no_other_is_taken(tmp_path, first_port):
    opened(make(tmp_path))
    with socket.socket() as other:
        other.bind(("0.0.0.0", first_port))
        other.listen()
        with pytest.raises(StartFailed, match=rf"port = {first_port}: another program .* --port"):
            make(tmp_path).open()
    assert opened(make(tmp_path)).port == first_port


def test_the_owners_port_comes_before_the_one_kept_and_is_kept_then(tmp_path, first_port):
    opened(make(tmp_path))
    assert opened(make(tmp_path, port=first_port + 1)).port == first_port + 1
    assert opened(make(tmp_path)).port == first_port + 1


def test_when_no_port_is_free_the_start_says_so(tmp_path, first_port, monkeypatch):
    monkeypatch.setattr(front_door, "_N_PORTS", 1)
    with socket.socket() as other:
        other.bind(("0.0.0.0", first_port))
        other.listen()
        with pytest.raises(StartFailed, match="Choose a free one with --port"):
            make(tmp_path).open()


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"port": "x"}', b'{"port": 70000, "url": 3}', b"\xff"])
def test_a_note_that_cannot_be_used_counts_as_none(tmp_path, first_port, note):
    (tmp_path / "front-door.json").write_bytes(note)
    assert opened(make(tmp_path)).port == first_port


def test_a_note_that_cannot_be_written_does_not_stop_the_start(tmp_path, first_port):
    door = FrontDoor(tmp_path / "gone" / "front-door.json", "0.0.0.0", 0, "", lambda: [WIRED])
    assert opened(door).port == first_port


def test_every_address_of_the_office_is_there_and_those_of_a_vpn_apart(tmp_path, first_port):
    view = opened(make(tmp_path, [WIRED, WIRELESS, VPN])).look()
    assert view.urls == (f"http://192.168.1.20:{first_port}", f"http://192.168.1.21:{first_port}")
    assert view.url == view.urls[0]
    assert view.virtual_urls == (f"http://10.8.0.2:{first_port}",)
    assert view.own_url == f"http://127.0.0.1:{first_port}"
    assert view.is_shared


def test_where_there_is_only_a_vpn_its_address_is_the_one(tmp_path, first_port):
    view = opened(make(tmp_path, [VPN])).look()
    assert (view.urls, view.virtual_urls) == ((f"http://10.8.0.2:{first_port}",), ())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_program_for_this_pc_alone_has_nothing_to_hand_out(tmp_path, first_port, host):
    view = opened(make(tmp_path, host=host)).look()
    assert (view.urls, view.is_shared, view.changed_from) == ((), False, "")
    assert view.own_url == f"http://{host}:{first_port}"


def test_an_address_of_the_owners_choice_is_the_only_one(tmp_path):
    view = make(tmp_path, host="192.168.1.20", port=8000).look()
    assert view.urls == ("http://192.168.1.20:8000",)


def test_an_address_that_has_changed_is_named_and_one_that_is_only_second_now_is_not(tmp_path, first_port):
    old = f"http://192.168.1.20:{first_port}"
    assert opened(make(tmp_path)).look().changed_from == ""
    assert opened(make(tmp_path, [WIRELESS, WIRED])).look().changed_from == ""
    opened(make(tmp_path))
    assert opened(make(tmp_path, [WIRELESS])).look().changed_from == old
    assert opened(make(tmp_path, [WIRELESS])).look().changed_from == ""


def test_another_port_is_another_address(tmp_path, first_port):
    opened(make(tmp_path))
    assert opened(make(tmp_path, port=first_port + 1)).look().changed_from == f"http://192.168.1.20:{first_port}"


def test_a_change_while_it_runs_is_named_too(tmp_path, first_port):
    adapters = [WIRED]
    door = opened(FrontDoor(tmp_path / "note", "0.0.0.0", 0, "", lambda: adapters))
    adapters[:] = [WIRELESS]
    assert door.look().changed_from == f"http://192.168.1.20:{first_port}"


def test_a_network_that_comes_up_after_the_start_is_remembered_all_the_same(tmp_path, first_port):
    adapters: list[object] = []
    door = opened(FrontDoor(tmp_path / "note", "0.0.0.0", 0, "", lambda: adapters))
    adapters[:] = [WIRED]
    first = door.look()
    assert (first.changed_from, first.url) == ("", f"http://{WIRED.address}:{door.port}")
    later = opened(FrontDoor(tmp_path / "note", "0.0.0.0", 0, "", lambda: [WIRELESS]))
    assert later.look().changed_from == first.url


def test_without_a_network_the_old_address_is_not_forgotten(tmp_path, first_port):
    opened(make(tmp_path))
    view = opened(make(tmp_path, [])).look()
    assert (view.url, view.changed_from, view.is_shared) == ("", "", True)
    assert opened(make(tmp_path, [WIRELESS])).look().changed_from == f"http://192.168.1.20:{first_port}"


def test_the_note_holds_port_and_address_and_nothing_else(tmp_path, first_port):
    opened(make(tmp_path))
    assert json.loads((tmp_path / "front-door.json").read_bytes()) == {
        "port": first_port,
        "url": f"http://192.168.1.20:{first_port}",
    }


def read_code(rows: list[str]) -> str:
    """What a phone reads of a code drawn with one character for each of its squares."""
    image = Image.new("L", (len(rows[0]), len(rows)), 255)
    image.putdata([0 if square == "#" else 255 for row in rows for square in row])
    (found,) = zxingcpp.read_barcodes(image.resize((image.width * 8, image.height * 8), Image.Resampling.NEAREST))
    return found.text


def test_the_code_on_the_console_is_the_address():
    upper, lower = {" ": "##", "\u2580": ".#", "\u2584": "#.", "\u2588": ".."}, []
    for line in qr_console(URL).splitlines():
        pairs = [upper[character] for character in line]
        lower += ["".join(pair[0] for pair in pairs), "".join(pair[1] for pair in pairs)]
    assert read_code(lower) == URL


def test_the_picture_is_an_svg_that_needs_nothing_from_elsewhere():
    picture = unquote(qr_picture(URL))
    assert picture.startswith("data:image/svg+xml")
    assert "href" not in picture


@pytest.mark.parametrize(
    ("programs", "kind", "command"),
    [
        ({"ufw", "nft", "iptables"}, "ufw", "sudo ufw allow 7861/tcp"),
        (
            {"firewall-cmd", "nft"},
            "firewalld",
            "sudo firewall-cmd --permanent --add-port=7861/tcp --add-service=mdns && sudo firewall-cmd --reload",
        ),
        ({"nft", "iptables"}, "nftables", "sudo nft insert rule inet filter input tcp dport 7861 accept"),
        ({"iptables"}, "iptables", "sudo iptables -I INPUT -p tcp --dport 7861 -j ACCEPT"),
        (set(), "none", ""),
    ],
)
def test_the_rule_is_for_the_firewall_that_is_found(tmp_path, programs, kind, command):
    rule = firewall_rule(7861, "linux", lambda name: name if name in programs else None, tmp_path)
    assert (rule.kind, rule.command) == (kind, command)


def test_nftables_own_names_are_used(tmp_path):
    (tmp_path / "nftables.conf").write_text(
        "#!/usr/sbin/nft -f\ntable ip nat { chain post { type nat hook postrouting priority 0; } }\n"
        "table inet office { # ours\n chain out { type filter hook output priority 0; }\n"
        " chain incoming { type filter hook input priority 0; policy drop; }\n}\n"
    )
    rule = firewall_rule(80, "linux", lambda name: name if name == "nft" else None, tmp_path)
    assert rule.command == "sudo nft insert rule inet office incoming tcp dport 80 accept"


def test_windows_and_macos_have_their_own_way():
    assert firewall_rule(7860, "win32").command.endswith("protocol=TCP localport=7860 profile=private,domain")
    assert firewall_rule(7860, "darwin").kind == "macos"


async def test_a_name_that_cannot_be_announced_harms_nothing(monkeypatch, caplog):
    def refuse(**_options):
        raise OSError("no multicast here")

    monkeypatch.setattr(local_name, "AsyncZeroconf", refuse)
    looked = asyncio.Event()

    def addresses():
        looked.set()
        return ["192.168.1.20"]

    name = LocalName("office-chat", addresses)
    task = asyncio.create_task(name.run(7860))
    await looked.wait()
    await asyncio.sleep(0)
    assert not task.done()
    assert name.name == ""
    assert "office-chat.local cannot be announced (OSError)" in caplog.text
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_program_for_this_pc_alone_announces_no_name(tmp_path):
    await make(tmp_path, host="127.0.0.1", port=1, label="office-chat").announce()
    await make(tmp_path, port=1).announce()


def test_neither_the_codes_nor_the_name_are_imported_before_they_are_needed():
    code = "import sys, appliance.lifecycle; print([m for m in ('segno', 'zeroconf') if m in sys.modules])"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True).stdout == "[]\n"
