"""Requests no page sends, at the running program: each gets a sentence, none a traceback, and no file is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
import pytest

from tests.system.program import Program

HEADERS = {"X-Tab": "t" * 32}


@pytest.fixture
def program(start) -> Program:
    return start().wait_ready()


@contextlib.contextmanager
def client(program: Program) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=program.url, trust_env=False, timeout=10, headers=HEADERS) as http:
        http.get("/")
        yield http


def test_forged_requests_leave_the_console_and_the_disk_clean(program):
    with client(program) as http, client(program) as other:
        events = {event["api_name"]: event["id"] for event in http.get("/config").json()["dependencies"]}
        cancelling = [number for name, number in events.items() if not name or name.startswith("unnamed")]
        question = {"data": ["hello"], "fn_index": events["ask"], "session_hash": "s"}
        for change in (
            {"fn_index": 9999},
            {"fn_index": -1},
            {"data": [None]},
            {"data": []},
            {"session_hash": None},
            *({"fn_index": number, "data": []} for number in cancelling),
        ):
            for path in ("queue/join", "run/predict", "run/unnamed"):
                answer = http.post(f"/gradio_api/{path}", json={**question, **change})
                assert answer.status_code in (404, 422), (path, change)
                assert answer.json()["detail"]
        for path in ("upload", "call/ask", "component_server", "vibe-code/", "api/ask"):
            assert http.post(f"/gradio_api/{path}", files={"files": ("a.txt", b"x")}).status_code == 404
        for path in ("heartbeat/x", "dev/reload", "queue/data?session_hash=nobody"):
            assert http.get(f"/gradio_api/{path}").status_code == 404
        assert http.post("/gradio_api/queue/join", json=question).status_code == 200
        assert other.get("/gradio_api/queue/data?session_hash=s").status_code == 404
        with http.stream("GET", "/gradio_api/queue/data?session_hash=s") as stream:
            assert "hello" in "".join(stream.iter_lines())
        # Its messages are gone now: Gradio would log an error.
        assert other.get("/gradio_api/queue/data?session_hash=s").status_code == 404
    assert [path for path in (program.data_dir / "temp").rglob("*") if path.is_file()] == []
    program.terminate()
    assert "Traceback" not in program.log()
    text = program.output()
    assert "Traceback" not in text
    assert "ERROR" not in text
