"""Every row of the settings table, changed at a running program: it is announced for a restart, or seen to act.

The program is left as it was found after each row. What a clock decides is moved by one in unit tests, how words are
drawn needs a model: those rows are named in ELSEWHERE.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from appliance.access.logins import COOKIE_NAME, Logins
from appliance.access.passwords import Passwords
from appliance.access.person import load_secret
from appliance.base.paths import Paths
from appliance.settings.schema import Settings, is_live
from tests.system.program import Program, command, free_port

ADMIN, PASSCODE = "correct horse", "open sesame"
TAB, OTHER_TAB = "a" * 20, "b" * 20
LONG = "word, " * 60
"""About six seconds of echo."""
BEGINNING = {
    "backend": "echo",
    "open_browser": False,
    "lan_name": "",
    "max_batch_size": 1,
    "look_ahead": 0,
    "queue_size": 1,
    "max_answers_per_person": 1,
    "disconnect_grace_s": 1,
    "disconnect_grace_busy_s": 1,
    "questions_per_minute": 0,
    "questions_per_minute_and_address": 0,
    "address_share": 0,
}
RULE = '[[rule]]\nquestions = ["where am I"]\nanswer = "In {office_name}."\n'
HOUR_AGO_S = 3600.0


class Office:
    """The program, its admin, and a browser of somebody else."""

    def __init__(self, data_dir: Path) -> None:
        command(data_dir, "set-admin-password", typed=ADMIN + "\n")
        command(data_dir, "set-passcode", typed=PASSCODE + "\n")
        self.key = {"Authorization": f"Bearer {command(data_dir, 'add-key', 'ann').split()[0]}"}
        (data_dir / "quick_answers.toml").write_text(RULE)
        port = free_port()
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in {**BEGINNING, "port": port}.items()]
        (data_dir / "office-chat.toml").write_text("".join(lines))
        self.program = Program(data_dir, port=port, reads_file=True).wait_ready()
        self.admin, self.browser = self.opened(), self.opened({"X-Tab": TAB})
        assert self.admin.post("/admin/login", data={"password": ADMIN}).status_code == 303
        self.browser.get("/")
        self._events = {e["api_name"]: e["id"] for e in self.browser.get("/config").json()["dependencies"]}

    def opened(self, headers: dict[str, str] | None = None) -> httpx.Client:
        return httpx.Client(base_url=self.program.url, trust_env=False, timeout=15, headers=headers)

    def close(self) -> None:
        self.admin.close()
        self.browser.close()
        self.program.close()

    def save(self, **changes: str) -> httpx.Response:
        return self.admin.post("/admin/settings", json={"lang": "en", "changes": changes})

    def saved(self) -> dict[str, str]:
        return dict(self.admin.get("/admin/settings").json())

    # -- looking ---------------------------------------------------------------------------------------------

    def event(self, name: str, *data: str, **headers: str) -> httpx.Response:
        """Run one of the page's events that are not queued."""
        body = {"data": list(data), "fn_index": self._events[name], "session_hash": "s"}
        return self.browser.post("/gradio_api/run/predict", json=body, headers=headers)

    def join(self, text: str, **headers: str) -> int:
        """The status of a question on the page; its answer is not read."""
        body = {"data": [text], "fn_index": self._events["ask"], "session_hash": "s"}
        return self.browser.post("/gradio_api/queue/join", json=body, headers=headers).status_code

    def asked(self, text: str, **headers: str) -> httpx.Response:
        """A program's question."""
        body = {"messages": [{"role": "user", "content": text}]}
        return self.admin.post("/v1/chat/completions", json=body, headers=self.key | headers)

    def said(self, text: str) -> str:
        return str(self.asked(text).json()["choices"][0]["message"]["content"])

    def welcome(self) -> str:
        return str(self.event("restore").json()["data"][-1])

    def header(self) -> str:
        return str(self.event("hello").json()["data"][0])

    def status(self, path: str, **headers: str) -> int:
        """What a stranger gets."""
        with self.opened(headers) as http:
            return http.get(path).status_code

    def second_question(self) -> int:
        """The status of the second of two questions."""
        return [self.asked("hello").status_code for _ in range(2)][-1]

    def with_old_login(self, role: str) -> int:
        """The status of an admin's route with a login of an hour ago."""
        paths = Paths(self.program.data_dir)
        passwords = Passwords(paths.passwords)
        logins = Logins(load_secret(paths.secret), passwords, paths.ended_logins, {}, lambda: time.time() - HOUR_AGO_S)
        return self.status("/admin/status", Cookie=f"{COOKIE_NAME}={logins.issue(role)}")

    def one_too_many(self) -> int:
        """The status of a question while one is answered and one waits."""
        with contextlib.ExitStack() as held:
            for number in range(3):  # each another question: the same one would be answered once for all
                body = {"messages": [{"role": "user", "content": f"{number} {LONG}"}], "stream": True}
                http = held.enter_context(self.opened())
                stream = http.stream("POST", "/v1/chat/completions", json=body, headers=self.key)
                status = held.enter_context(stream).status_code
        self.wait_idle()
        return status

    def second_tab(self) -> int:
        """The status of a second question of one person, while the first is answered."""
        assert self.join(LONG) == 200
        self.wait_for(lambda: self.browser.get("/place").json()["running"])
        status = self.join("a short one", **{"X-Tab": OTHER_TAB})
        self.event("new_chat")
        self.wait_idle()
        return status

    def wait_idle(self) -> None:
        """Until nothing is in hand."""
        self.wait_for(lambda: self.metric("office_chat_places_taken") == 0)

    @staticmethod
    def wait_for(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def metric(self, name: str) -> float:
        lines = self.admin.get("/metrics", headers=self.key).text.splitlines()
        return float(next(line for line in lines if line.startswith(name + " ")).split()[1])

    def forgotten_in_s(self) -> int:
        """What the page is told of its conversation."""
        assert self.join("hello") == 200
        self.wait_for(lambda: self.browser.get("/conversation").json()["turns"])
        return int(self.browser.get("/conversation").json()["forgotten_in_s"])


Look = Callable[[Office], Any]
SEEN: dict[str, tuple[str, Look, Any, Any]] = {
    "access": ("passcode", lambda o: o.status("/config"), 200, 401),
    "allowed_hosts": ("chat.example", lambda o: o.status("/health", Host="chat.example"), 421, 200),
    "login_days": ("0.02", lambda o: o.with_old_login("person"), 403, 401),
    "admin_login_hours": ("0.5", lambda o: o.with_old_login("admin"), 200, 401),
    "questions_per_minute": ("1", Office.second_question, 200, 429),
    "questions_per_minute_and_address": ("1", Office.second_question, 200, 429),
    "keyless_here": ("true", lambda o: o.status("/v1/models"), 401, 200),
    "language": ("zh", lambda o: "办公室" in o.header(), False, True),
    "notice": ("Lunch at 12", lambda o: "Lunch at 12" in o.header(), False, True),
    "starter_questions": ("Where is the printer?", lambda o: "Where is the printer?" in o.welcome(), False, True),
    "presets": ("Our tone: Rewrite this", lambda o: "Rewrite this" in o.welcome(), False, True),
    "own_wishes": ("false", lambda o: o.join("hello", **{"X-Wishes": quote('{"no": "wish"}')}), 422, 200),
    "system_prompt": (
        "Briefly.",
        lambda o: o.asked("hello", **{"Cache-Control": "no-cache"}).json()["usage"]["prompt_tokens"] < 60,
        False,
        True,
    ),
    "queue_size": ("2", Office.one_too_many, 503, 200),
    "look_ahead": ("1", Office.one_too_many, 503, 200),
    "max_answers_per_person": ("2", Office.second_tab, 422, 200),
    "session_ttl_s": ("60", lambda o: o.forgotten_in_s() <= 60, False, True),
    "quick_answers": ("false", lambda o: o.said("where am I"), "In .", "where am I"),
    "office_name": ("Haus 3", lambda o: o.said("where am I"), "In .", "In Haus 3."),
    "answer_cache_scope": (
        "off",
        lambda o: [o.asked("the same").headers["x-office-chat-cache"] for _ in range(2)][-1],
        "hit",
        "miss",
    ),
}
"""New value, how its effect is looked at, what is seen before and after."""
ELSEWHERE = {
    "tests/unit/settings/test_live_settings.py": (
        *("disconnect_grace_s", "disconnect_grace_busy_s", "answer_cache_ttl_s", "short_answer_tokens"),
        *("shorter_answers_wait_s", "shorter_history_wait_s", "saved_only_wait_s", "busy_wait_s", "address_share"),
    ),
    "tests/system/test_starter_model.py": ("temperature", "top_p", "top_k", "repetition_penalty"),
}
AT_RESTART = {
    "host": "127.0.0.1",
    "port": str(free_port()),
    "lan_name": "our-chat",
    "model": "other.gguf",
    "download_endpoint": "https://mirror.example",
    "download_proxy": "http://proxy.example:3128",
    "backend": "llama",
    "open_browser": "true",
    "max_batch_size": "4",
    "max_context_tokens": "2048",
    "max_answer_tokens": "100",
    "max_input_chars": "300",
    "max_wait_ms": "20",
    "min_batch_size": "2",
    "answer_cache_mb": "8",
    "max_itl_ms": "400",
    "priority_session_timeout_s": "20",
    "starvation_limit_ms": "200",
    "reuse_kv": "false",
    "parked_ram_mb": "10",
    "parked_disk_mb": "0",
    "engine_cores": "0",
    "engine_priority": "low",
    "yield_to_others": "false",
    "mlock": "true",
    "tuning_max_kl": "0.2",
    "n_threads": "1",
}
LOCKED = {"data_dir": "/elsewhere"}
STARTS_WITHOUT = ("backend", "open_browser", "lan_name", "mlock")
"""What a test cannot have: a large model, a window of a browser, a name on the network, memory that may not be had."""


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    opened = Office(tmp_path_factory.mktemp("office"))
    yield opened
    opened.close()


def test_no_row_is_left_out(project_root):
    elsewhere = {key: path for path, keys in ELSEWHERE.items() for key in keys}
    live = {key for key in Settings.model_fields if is_live(key)}
    assert live == {*SEEN, *elsewhere}
    assert {*Settings.model_fields} - live == {*AT_RESTART, *LOCKED}
    for key, path in elsewhere.items():
        assert key in (project_root / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("key", SEEN)
def test_what_acts_at_once_is_seen_to_act(office: Office, key: str) -> None:
    value, look, before, after = SEEN[key]
    present = office.saved()[key]
    office.wait_idle()
    assert look(office) == before
    try:
        answer = office.save(**{key: value})
        assert (answer.status_code, answer.json()["said"]) == (200, "Saved. It acts already.")
        assert look(office) == after
    finally:
        assert office.save(**{key: present}).status_code == 200


@pytest.mark.parametrize("key", AT_RESTART)
def test_what_acts_at_the_next_start_is_announced(office: Office, key: str) -> None:
    value = AT_RESTART[key]
    present = office.saved()[key]
    assert value != present
    room = office.saved()["max_batch_size"]  # without which no other min_batch_size goes
    try:
        answer = office.save(**{"max_batch_size": "4", key: value})
        assert (answer.status_code, answer.json()["said"]) == (200, "Saved. It acts at the next start.")
        assert "In use until the restart" in answer.json()["rows"][key]["note"]
        assert office.saved()[key] == value
    finally:
        back = office.save(**{"max_batch_size": room, key: present})
        assert "In use until" not in back.json()["rows"][key]["note"]


@pytest.mark.parametrize("key", LOCKED)
def test_what_a_flag_decides_is_not_changed_here(office: Office, key: str) -> None:
    answer = office.save(**{key: LOCKED[key]})
    assert answer.status_code == 422
    assert answer.json()["problems"][key] == "Set by the environment or a flag; it can only be changed there."
    assert "a flag at the start" in answer.json()["rows"][key]["note"]


def test_a_restart_begins_with_all_that_waited_for_it(office: Office) -> None:
    wanted = {key: value for key, value in AT_RESTART.items() if key not in STARTS_WITHOUT}
    assert office.save(**wanted).json()["said"] == "Saved. It acts at the next start."
    office.program.terminate()
    office.program.close()
    office.program = Program(office.program.data_dir, port=int(wanted["port"]), reads_file=True).wait_ready()
    with office.opened() as http:
        http.post("/admin/login", data={"password": ADMIN})
        rows = http.post("/admin/settings", json={"changes": {}}).json()["rows"]
    assert {key: rows[key]["saved"] for key in wanted} == wanted
    assert [key for key, row in rows.items() if "In use until the restart" in row["note"]] == []
