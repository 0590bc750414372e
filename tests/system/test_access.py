"""Who may, at the running program: this PC, another PC (this machine's own LAN address), the owner's commands."""

from __future__ import annotations

import json
import socket

import httpx
import openai
import pytest

from appliance.base.paths import Paths
from appliance.network.interfaces import lan_addresses
from tests.system.program import Program, command

ASK = {"messages": [{"role": "user", "content": "hello"}]}
PASSCODE, ADMIN = "open sesame", "correct horse"


@pytest.fixture
def lan() -> str:
    """An address of this machine under which it looks like another PC."""
    addresses = lan_addresses()
    if not addresses:
        pytest.skip("this machine has no address but loopback")
    return addresses[0]


@pytest.fixture
def guarded(start, tmp_path) -> Program:
    """A program that asks for the passcode."""
    command(tmp_path / "data", "set-passcode", typed=PASSCODE + "\n")
    command(tmp_path / "data", "set-admin-password", typed=ADMIN + "\n")
    return start(access="passcode").wait_ready(command(tmp_path / "data", "add-key", "monitor").split()[0])


def browser(program: Program, host: str = "127.0.0.1") -> httpx.Client:
    return httpx.Client(base_url=f"http://{host}:{program.port}", trust_env=False, timeout=15, follow_redirects=True)


def log_in(http: httpx.Client, password: str, path: str = "/login") -> httpx.Response:
    return http.post(path, data={"password": password, "next": "/ready"})


def raw(program: Program, request: str, host: str = "127.0.0.1") -> str:
    """The answer to a request no client library would send."""
    with socket.create_connection((host, program.port), timeout=10) as connection:
        connection.sendall(request.replace("\n", "\r\n").encode("latin-1"))
        connection.shutdown(socket.SHUT_WR)
        parts = iter(lambda: connection.recv(65536), b"")
        return b"".join(parts).decode("latin-1")


def test_on_the_lan_a_program_needs_a_key_and_nobody_is_the_admin(start, lan):
    program = start().wait_ready()
    with browser(program, lan) as http:
        assert http.get("/").status_code == 200
        assert http.get("/config").status_code == 200
        for path in ("/admin/status", "/admin/anything"):
            assert http.get(path).status_code == 403
        assert http.post("/v1/chat/completions", json=ASK).status_code == 401
        with pytest.raises(openai.AuthenticationError):
            ask_as_openai(program, lan, "oc_wrong")
        key = command(program.data_dir, "add-key", "Ann's laptop").split()[0]
        assert ask_as_openai(program, lan, key) == "hello"
        assert http.get("/admin/status", headers={"Authorization": f"Bearer {key}"}).status_code == 403
        assert "Ann's laptop" in command(program.data_dir, "list-keys")
        command(program.data_dir, "revoke-key", "Ann's laptop")
        with pytest.raises(openai.AuthenticationError):
            ask_as_openai(program, lan, key)
    with browser(program) as here:
        here.get(program.owners_link("/"))
        assert here.post("/v1/chat/completions", json=ASK).status_code == 200
        assert here.get("/admin/status").json()["access"] == "open"
        assert here.get("/admin/status", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 403
        command(program.data_dir, "set-admin-password", typed=ADMIN + "\n")
        assert here.get("/admin/status").status_code == 401
    assert key not in program.log()


def ask_as_openai(program: Program, host: str, key: str) -> str:
    with httpx.Client(trust_env=False) as http:
        client = openai.OpenAI(
            base_url=f"http://{host}:{program.port}/v1", api_key=key, http_client=http, max_retries=0
        )
        answer = client.chat.completions.create(model="any", messages=ASK["messages"])
    return answer.choices[0].message.content


def test_a_login_outlives_a_restart_and_another_passcode_ends_it(start, guarded):
    with browser(guarded) as http:
        assert http.get("/", headers={"accept": "text/html"}).url.path == "/login"
        assert (
            http.post("/gradio_api/queue/join", json={"fn_index": 0, "data": ["x"], "session_hash": "s"}).status_code
            == 401
        )
        assert log_in(http, "wrong one").status_code == 403
        assert log_in(http, PASSCODE).json() == {"status": "ready"}
        assert http.get("/config").status_code == 200
        assert http.get("/admin/status").status_code == 403
        guarded.terminate()
        key = command(guarded.data_dir, "add-key", "another monitor").split()[0]
        again = start(access="passcode", port=guarded.port).wait_ready(key)
        assert http.get("/config").status_code == 200
        command(again.data_dir, "set-passcode", typed="another one\n")
        assert http.get("/config").status_code == 401
        assert log_in(http, PASSCODE).status_code == 403
        assert log_in(http, "another one").status_code == 200
        assert log_in(http, ADMIN, "/admin/login").status_code == 200
        assert http.get("/admin/status").json()["admin_password_set"] is True
        http.post("/logout")
        assert http.get("/config").status_code == 401
    assert "a login as person failed, from 127.0.0.1" in again.log()
    assert PASSCODE not in again.log()


def test_a_passcode_that_is_not_set_stops_the_start_with_the_command(start):
    program = start(access="passcode")
    assert program.process.wait(30) == 1
    assert "app.py set-passcode" in program.output()


def test_case_2_a_private_event_and_its_neighbours_need_a_login(guarded):
    before = {path: path.read_bytes() for path in guarded.data_dir.iterdir() if path.is_file()}
    with browser(guarded) as inside, browser(guarded) as http:
        log_in(inside, PASSCODE)
        config = inside.get("/config").json()
        for event in config["dependencies"]:
            body = {"fn_index": event["id"], "data": ["x"] * len(event["inputs"]), "session_hash": "s"}
            for path in ("queue/join", f"call/{event['api_name']}", f"run/{event['api_name']}"):
                assert http.post(f"/gradio_api/{path}", json=body).status_code == 401
        shown = json.dumps(config) + inside.get("/").text
    paths = Paths(guarded.data_dir)
    secrets = [ADMIN, PASSCODE, "$argon2", str(guarded.data_dir), paths.secret.read_bytes().hex()]
    assert [secret for secret in secrets if secret in shown] == []
    assert {path: path.read_bytes() for path in guarded.data_dir.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    "prefix", ["/gradio_api/file=", "/file=", "/gradio_api/file/", "/static/", "/assets/", "/theme/"]
)
def test_cases_64_and_65_no_file_is_read_and_nobody_is_sent_elsewhere(echo, prefix):
    data = echo.data_dir
    targets = [
        "/etc/passwd",
        "C:/Windows/win.ini",
        f"{data}/secret.key",
        f"{data}/logs/office-chat.log",
        "../../../../../../etc/passwd",
        "..%2f..%2f..%2f..%2f..%2fetc/passwd",
        "%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "..\\..\\..\\windows\\win.ini",
        f"http://127.0.0.1:{echo.port}/config",
        "http://192.168.0.1/",
        "//192.168.0.1/",
    ]
    for target in targets:
        answer = raw(echo, f"GET {prefix}{target} HTTP/1.1\nHost: 127.0.0.1\nConnection: close\n\n")
        status = int(answer.split(" ", 2)[1])
        assert status in (400, 403, 404, 405), (target, answer[:300])
        assert "location:" not in answer.lower()
        assert "root:" not in answer


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Host: attacker.example", 421),
        ("Host: 0.0.0.0:7860", 421),
        ("Host: 127.0.0.1\nHost: attacker.example", 400),
        ("X: no host at all", 400),
        ("Host: 127.0.0.1\nOrigin: http://attacker.example", 403),
        ("Host: 127.0.0.1\nOrigin: null", 403),
        ("Host: 127.0.0.1\nSec-Fetch-Site: cross-site", 403),
        ("Host: LOCALHOST.", 200),
        ("Host: 127.0.0.1\nOrigin: http://127.0.0.1", 200),
    ],
)
def test_a_foreign_name_or_page_is_refused_before_anything_else(echo, headers, status):
    answer = raw(echo, f"GET /health HTTP/1.1\n{headers}\nConnection: close\n\n")
    assert int(answer.split(" ", 2)[1]) in ({status, 421} if status == 400 else {status})
    if status in (403, 421):
        assert "access-control-allow" not in answer.lower()


def test_a_neighbour_who_asks_too_fast_hears_when_to_ask_again(start, lan):
    program = start(questions_per_minute=3).wait_ready()
    with browser(program, lan) as http:
        http.get("/")
        ask = {event["api_name"]: event["id"] for event in http.get("/config").json()["dependencies"]}["ask"]
        answers = [
            http.post(
                "/gradio_api/queue/join",
                json={"fn_index": ask, "data": ["hello"], "session_hash": f"s{number}"},
                headers={"X-Tab": str(number) * 20, "X-Lang": "zh"},
            )
            for number in range(4)
        ]
        assert answers[-1].status_code == 422
        assert "秒后再试" in answers[-1].text
        assert [answer.status_code for answer in answers[:1]] == [200]
        bearer = {"Authorization": "Bearer " + command(program.data_dir, "add-key", "ann").split()[0]}
        for _ in range(3):
            assert http.post("/v1/chat/completions", json=ASK, headers=bearer).status_code == 200
        refused = http.post("/v1/chat/completions", json=ASK, headers=bearer)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_fast")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        for _ in range(4):
            streamed = http.get("/api/stream?prompt=hello", headers={"accept": "text/event-stream"})
        assert "too_fast" in streamed.text
