"""Names in requests: what is this PC's, what is foreign, what comes from this PC itself."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from appliance.network.hosts import (
    Authority,
    KnownHosts,
    counted_address,
    is_foreign,
    is_on_this_pc,
    is_same_origin,
    local_path,
    parse_authority,
    parse_host_list,
)

HOSTS = KnownHosts(("chat.example",), own_name=lambda: "Office-PC")
LAN = Authority("192.168.1.20", 7860)
LOCAL = Authority("127.0.0.1", 7860)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7860", "127.0.0.1", 7860),
        ("LOCALHOST.:80", "localhost", 80),
        ("Office-PC", "office-pc", None),
        ("[::1]:7860", "::1", 7860),
        ("[0:0:0:0:0:0:0:1]", "::1", None),
        ("[::ffff:192.168.1.20]:1", "192.168.1.20", 1),
        ("[FE80::1]", "fe80::1", None),
    ],
)
def test_a_host_has_one_spelling(text, host, port):
    assert parse_authority(text) == Authority(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "user@127.0.0.1",
        "127.0.0.1/",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:80:80",
        "127.0.0.1:x",
        "::1",
        "[::1",
        "[::g]",
        "a b",
        "a,b",
        "a\nb",
        "127.0.0.1#evil",
        "办公室",
        "x" * 254,
    ],
)
def test_what_can_be_no_host_is_none(text):
    assert parse_authority(text) is None


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("localhost:1", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("[::1]", True),
        ("192.168.1.20:7860", True),
        ("OFFICE-PC", True),
        ("office-pc.local.", True),
        ("chat.example:8080", True),
        ("192.168.1.21", False),
        ("0.0.0.0", False),
        ("[::]", False),
        ("2130706433", False),
        ("127.1", False),
        ("0x7f.0.0.1", False),
        ("office-pc.attacker.example", False),
        ("localhost.attacker.example", False),
        ("chat.example.attacker.example", False),
        ("sub.chat.example", False),
    ],
)
def test_only_this_pcs_own_names_are_known(text, ours):
    host = parse_authority(text)
    assert host is not None
    assert HOSTS.knows(host, "::ffff:192.168.1.20") is ours


def test_an_address_is_ours_only_on_the_connection_that_reached_it():
    assert HOSTS.knows(LAN, "192.168.1.20")
    assert not HOSTS.knows(LAN, "10.0.0.1")
    assert not HOSTS.knows(LAN, None)


def test_the_name_announced_on_the_network_is_known_as_long_as_it_is_announced():
    announced = ["office-chat-2.local"]
    hosts = KnownHosts((), own_name=lambda: "pc1", announced=lambda: announced[0])
    assert hosts.knows(Authority("office-chat-2.local"), None)
    announced[0] = ""
    assert not hosts.knows(Authority("office-chat-2.local"), None)
    assert not hosts.knows(Authority(""), None)


def test_a_domain_name_of_the_pc_itself_is_known_in_all_its_forms():
    hosts = KnownHosts((), own_name=lambda: "PC1.office.example")
    assert [hosts.knows(Authority(name), None) for name in ("pc1", "pc1.local", "pc1.office.example", "pc1.other")] == [
        True,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://192.168.1.20:7860", LAN, True),
        ("HTTP://192.168.1.20:7860", LAN, True),
        ("http://192.168.1.20", LAN, False),
        ("http://192.168.1.20:8080", LAN, False),
        ("http://192.168.1.20:7860.attacker.example", LAN, False),
        ("http://user@192.168.1.20:7860", LAN, False),
        ("http://attacker.example#192.168.1.20:7860", LAN, False),
        ("null", LAN, False),
        ("", LAN, False),
        ("file://", LAN, False),
        ("chrome-extension://abcdef", LAN, False),
        ("http://chat.example", Authority("chat.example"), True),
        ("https://chat.example", Authority("chat.example"), True),
        ("https://CHAT.example.", Authority("chat.example", 443), True),
        ("http://chat.example:80", Authority("chat.example"), True),
        ("https://chat.example", Authority("chat.example", 80), False),
        ("http://[::1]:7860", Authority("::1", 7860), True),
        ("http://localhost:7860", LOCAL, False),
    ],
)
def test_an_origin_is_the_same_only_with_host_and_port(origin, host, same):
    assert is_same_origin(origin, host) is same


@pytest.mark.parametrize(
    ("headers", "method", "foreign"),
    [
        ({}, "POST", False),
        ({"origin": "http://192.168.1.20:7860"}, "POST", False),
        ({"origin": "null"}, "POST", True),
        ({"origin": "http://attacker.example"}, "GET", True),
        ({"origin": "http://192.168.1.20:8080"}, "OPTIONS", True),
        ({"sec-fetch-site": "same-origin"}, "POST", False),
        ({"sec-fetch-site": "none"}, "GET", False),
        ({"sec-fetch-site": "cross-site"}, "POST", True),
        ({"sec-fetch-site": "same-site"}, "POST", True),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, "GET", False),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}, "GET", True),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, "POST", True),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}, "GET", True),
        ({"sec-fetch-site": "anything else"}, "GET", True),
    ],
)
def test_a_foreign_page_is_noticed(headers, method, foreign):
    assert is_foreign(Headers(headers), method, LAN) is foreign


def test_two_origins_are_foreign():
    headers = Headers(raw=[(b"origin", b"http://192.168.1.20:7860")] * 2)
    assert is_foreign(headers, "POST", LAN)


@pytest.mark.parametrize(
    ("headers", "peer", "host", "here"),
    [
        ({}, "127.0.0.1", LOCAL, True),
        ({}, "::1", Authority("::1"), True),
        ({}, "::ffff:127.0.0.1", Authority("localhost"), True),
        ({}, "127.0.0.1", LAN, False),
        ({}, "127.0.0.1", Authority("chat.example"), False),
        ({}, "192.168.1.20", LOCAL, False),
        ({}, None, LOCAL, False),
        ({}, "testclient", LOCAL, False),
        *[
            ({name: "127.0.0.1"}, "127.0.0.1", LOCAL, False)
            for name in ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded", "X-Real-IP")
        ],
    ],
)
def test_this_pc_itself_is_loopback_at_both_ends_and_nobody_between(headers, peer, host, here):
    assert is_on_this_pc(Headers(headers), peer, host) is here


def test_limits_count_by_address_and_by_the_network_of_ipv6():
    assert counted_address("192.168.1.7") == counted_address("::ffff:192.168.1.7") == "192.168.1.7"
    assert counted_address("2001:db8::1") == counted_address("2001:db8::ffff") == "2001:db8::/64"
    assert counted_address(None) == ""


@pytest.mark.parametrize("path", ["/", "/admin/status?x=1", "/a%20b"])
def test_a_path_of_ours_is_gone_to_after_a_login(path):
    assert local_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "x",
        "//attacker.example",
        "/\\attacker.example",
        "/\t/attacker.example",
        "https://attacker.example",
        "/办",
        "/\n",
    ],
)
def test_no_other_place_is_gone_to(path):
    assert local_path(path) == "/"


def test_the_owners_list_of_hosts():
    assert parse_host_list(" Chat.Example., 10.0.0.5 ,[::1], 2001:DB8::1 ,") == (
        "chat.example",
        "10.0.0.5",
        "::1",
        "2001:db8::1",
    )
    assert parse_host_list("") == ()
    for wrong in ("chat.example:80", "http://chat.example", "*", "a b", "用户"):
        assert parse_host_list(wrong) is None
