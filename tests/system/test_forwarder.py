"""Behind a byte forwarder (a TLS terminator, socat, a port proxy) everybody seems to be this PC, and nobody is."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import socketserver
import stat
import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.system.program import Program, command


@contextlib.contextmanager
def forwarder(to_port: int) -> Iterator[str]:
    """Copies bytes, adds no header; the address in front of it, as somebody elsewhere would be given it."""

    class Carrier(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", to_port)) as there:
                ends = {self.request: there, there: self.request}
                while True:
                    for end in select.select(list(ends), [], [], 30)[0]:
                        if not (data := end.recv(65_536)):
                            return
                        ends[end].sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Carrier) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(10)


@pytest.fixture
def program(start) -> Program:
    return start(keyless_here=False).wait_ready()


def client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, trust_env=False, headers={"accept": "text/html"}, follow_redirects=True)


def test_through_it_nobody_is_the_admin_and_no_program_goes_without_a_key(program):
    with forwarder(program.port) as url, client(url) as stranger:
        assert stranger.get("/").status_code == 200, "chatting is for everybody"
        assert "no admin password yet" in stranger.get("/admin").text
        assert stranger.get("/admin/status", headers={"accept": "*/*"}).status_code == 403
        assert stranger.get("/v1/models").status_code == 401
        assert "keyless_here" in stranger.get("/v1/models").text
        assert stranger.get("/metrics").status_code == 401


def test_the_program_itself_lets_its_owner_in_and_again_after_a_restart(program, start):
    link = program.owners_link("/admin/status").removeprefix(program.url)
    with client(program.url) as owner:
        assert owner.get(link).json()["admin_password_set"] is False
        with forwarder(program.port) as url, client(url) as stranger:
            assert stranger.get(link).status_code == 403, "it has been used"
        program.terminate()
        again = start(keyless_here=False).wait_ready()
        with client(again.url) as same_browser:
            same_browser.cookies.update(owner.cookies)
            assert same_browser.get("/admin/status").json()["admin_password_set"] is False


def test_the_command_makes_a_link_and_only_this_account_can_read_what_is_kept_of_it(program):
    printed = command(program.data_dir, "admin-link").splitlines()[0]
    assert printed.startswith(f"http://127.0.0.1:{program.port}/here?token=")
    kept = program.data_dir / "links.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    token = printed.partition("token=")[2].partition("&")[0]
    assert token not in kept.read_text()
    with client(program.url) as owner:
        assert "numbers" in owner.get(printed).text
    assert json.loads(kept.read_text()).keys().isdisjoint({token})
    assert token not in program.log()


def test_the_terminal_names_the_link_until_there_is_a_password(start):
    program = start().wait_ready()
    program.terminate()
    assert f"{program.url}/here?token=" in program.output()
    command(program.data_dir, "set-admin-password", typed="long enough\n")
    later = start().wait_ready()
    later.terminate()
    printed = later.output()
    assert "/here?token=" not in printed
    assert f"Administration: {later.url}/admin" in printed


def test_wrong_passwords_through_it_are_slowed_down_like_anybodys(program):
    command(program.data_dir, "set-admin-password", typed="long enough\n")
    with forwarder(program.port) as url, client(url) as stranger, client(program.url) as owner:
        stranger.get("/")
        owner.get(program.owners_link("/"))
        headers = {"origin": url}
        for _ in range(5):
            assert stranger.post("/admin/login", data={"password": "guess"}, headers=headers).status_code == 403
        assert stranger.post("/admin/login", data={"password": "guess"}, headers=headers).status_code == 429
        # The owner's own browser is counted apart, and waits for nobody.
        right = owner.post("/admin/login", data={"password": "long enough"}, headers={"origin": program.url})
        assert right.status_code == 200
        assert owner.get("/admin/status").json()["admin_password_set"] is True
