"""How the program starts, what it says when it cannot, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import httpx
import psutil
import pytest

from tests.system.program import ROOT, is_alive


def ask(url: str, text: str, **more: object) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": text}], **more}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60, trust_env=False)


def engine_as_soon_as_it_is_there(program) -> int:
    process = psutil.Process(program.process.pid)
    while not (found := [child for child in process.children() if "spawn_main" in " ".join(child.cmdline())]):
        assert program.process.poll() is None
        time.sleep(0.005)
    return found[0].pid


def refused(program) -> str:
    assert program.process.wait(30) == 1
    text = program.output()
    assert "Traceback" not in text
    return text


def test_an_idle_program_says_its_addresses_and_ends_with_its_engine(start):
    program = start().wait_ready()
    engine = program.engine_pid()
    assert program.status("/health") == 200
    program.terminate()
    assert program.process.returncode == 0
    assert not is_alive(engine)
    text = program.output()
    assert f"http://127.0.0.1:{program.port}" in text
    assert "For colleagues" in text
    assert "Traceback" not in text
    assert "ERROR" not in program.log()


def test_a_signal_to_the_whole_group_is_a_drain_too(start):
    program = start().wait_ready()
    os.killpg(program.process.pid, signal.SIGINT)
    assert program.process.wait(5) == 0
    assert "ERROR" not in program.log()


def test_a_signal_while_it_starts_ends_it_with_its_engine(start):
    program = start()
    time.sleep(1.5)
    children = psutil.Process(program.process.pid).children(recursive=True)
    assert program.terminate() < 5
    assert program.process.returncode == 0
    deadline = time.monotonic() + 5
    while any(is_alive(child.pid) for child in children) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(is_alive(child.pid) for child in children)


def test_running_answers_are_told_when_the_program_ends(start):
    program = start(max_input_chars=5000, max_context_tokens=8192, max_answer_tokens=4000).wait_ready()
    answers: list[httpx.Response] = []
    long = "word " * 500
    asking = threading.Thread(target=lambda: answers.append(ask(program.url, long, stream=True)))
    asking.start()
    time.sleep(1)
    assert program.terminate() < 5
    asking.join(5)
    assert program.process.returncode == 0
    (answer,) = answers
    assert '"code":"closing"' in answer.text
    assert answer.text.endswith("data: [DONE]\n\n")


def test_a_killed_web_process_leaves_no_engine(start):
    program = start().wait_ready()
    engine = program.engine_pid()
    program.process.kill()
    program.process.wait(5)
    deadline = time.monotonic() + 5
    while is_alive(engine) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_alive(engine)


def test_a_taken_port_is_named_with_the_remedy(start):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        text = refused(start(port=port))
        assert f"port = {port}" in text
        assert "--port" in text


def test_an_address_this_pc_does_not_have_is_named(start):
    assert "host = 198.51.100.7" in refused(start("--host", "198.51.100.7"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"max_batch_size": "lots"}, 'OFFICE_CHAT_MAX_BATCH_SIZE = "lots" in the environment: expected a whole number'),
        ({"max_batchsize": "4"}, "Did you mean max_batch_size?"),
        ({"backend": "llama", "model": "/nowhere/m.gguf"}, "/nowhere/m.gguf: does not exist"),
    ],
)
def test_a_setting_that_cannot_be_used_stops_the_start(start, settings, sentence):
    assert sentence in refused(start(**settings))


def test_a_bad_settings_file_stops_the_start(start, tmp_path):
    (tmp_path / "my.toml").write_text("queue_size = -1\n")
    text = refused(start("--config", str(tmp_path / "my.toml")))
    assert "queue_size = -1 in my.toml: expected a whole number of questions from 0 to 1000" in text


def test_a_data_folder_that_cannot_be_written_stops_the_start(start, tmp_path):
    (tmp_path / "file").write_text("")
    assert "--data-dir" in refused(start(data_dir=tmp_path / "file"))


@pytest.mark.model
@pytest.mark.parametrize(
    ("share", "content", "remedy"),
    [
        (0.5, None, "the file is cut off. Copy or download it again, in full."),
        (0, b"<!doctype html><p>Please sign in", "is a web page, not a model. Download it again"),
    ],
)
def test_case_59_a_model_that_cannot_be_used_is_named_with_the_remedy_and_stops_the_start(
    start, tmp_path, starter_model, share, content, remedy
):
    path = tmp_path / "broken.gguf"
    whole = starter_model.read_bytes()
    path.write_bytes(content or whole[: int(len(whole) * share)])
    text = refused(start("--model", str(path), backend="llama"))
    assert f"{path}: {remedy}" in text


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:9", "socks://127.0.0.1:9/"])
def test_case_20_proxy_settings_of_the_office_change_nothing(start, proxy):
    program = start(
        env=dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), proxy)
        | {"NO_PROXY": "", "no_proxy": ""}
    )
    program.wait_ready()
    assert httpx.get(program.url, trust_env=False).status_code == 200
    program.terminate()
    printed = program.output()
    assert f"On this PC:     {program.url}" in printed
    assert "share" not in printed


LISTEN = """
import sys
def hear(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        named = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
        with open({file!r}, "a") as heard:
            print(repr(named[0] if isinstance(named, tuple) else named), file=heard)
sys.addaudithook(hear)
"""


def test_case_21_nobody_off_this_pc_is_looked_up_or_called_by_the_start_or_a_chat(start, tmp_path):
    heard = tmp_path / "heard"
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(LISTEN.format(file=str(heard)))
    program = start(env={"PYTHONPATH": str(tmp_path / "hook")}).wait_ready()
    assert httpx.get(program.url, trust_env=False).status_code == 200
    assert ask(program.url, "hello").status_code == 200
    program.terminate()
    called = set(heard.read_text().split()) if heard.exists() else set()
    ours = ("'127.", "'::1", "'localhost", "'0.0.0.0", f"'{socket.gethostname()}'")
    nowhere = "'192.0.2.1'"  # a datagram socket that sends nothing; it tells this PC's address on the way out
    assert [name for name in called if not name.startswith((*ours, nowhere))] == []


SPY = """
import os, socket

open(os.environ["LOOKED_UP"], "a", encoding="utf-8").write("began localhost\\n")

def spied(name, look_up):
    def look(host, *more, **rest):
        with open(os.environ["LOOKED_UP"], "a", encoding="utf-8") as file:
            file.write(f"{name} {host}\\n")
        return look_up(host, *more, **rest)
    return look

for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
    setattr(socket, name, spied(name, getattr(socket, name)))
"""


def test_case_21_no_name_of_the_internet_is_looked_up(start, tmp_path):
    """So that it starts and answers where there is no internet, and where a look-up hangs."""
    (tmp_path / "sitecustomize.py").write_text(SPY, encoding="utf-8")
    looked_up = tmp_path / "looked-up"
    wishes = {"GRADIO_ANALYTICS_ENABLED": "True", "HF_HUB_OFFLINE": "0"}  # of the surroundings: they count for nothing
    program = start(env={"PYTHONPATH": str(tmp_path), "LOOKED_UP": str(looked_up)} | wishes).wait_ready()
    assert httpx.get(program.url, trust_env=False).status_code == 200
    assert ask(program.url, "hello").json()["choices"][0]["message"]["content"] == "hello"
    program.terminate()
    assert looked_up.read_text(encoding="utf-8").count("began") > 1, "in the engine's process too"
    names = {line.split()[1] for line in looked_up.read_text(encoding="utf-8").splitlines()}
    own = {"localhost", "None", socket.gethostname(), socket.getfqdn()}
    assert [name for name in names - own if not re.fullmatch(r"[\d.]+|[\da-f:]*:[\da-f:]*", name)] == []


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no such signal here")
def test_not_ready_before_the_engine_is(start):
    program = start()
    engine = engine_as_soon_as_it_is_there(program)
    os.kill(engine, signal.SIGSTOP)
    try:
        while program.status("/health") != 200:
            assert program.process.poll() is None
            time.sleep(0.02)
        assert program.status("/ready") == 503
    finally:
        os.kill(engine, signal.SIGCONT)
    program.wait_ready()


def test_a_folder_with_any_name_will_do(start, tmp_path):
    program = start(data_dir=tmp_path / "数据　a & b").wait_ready()
    assert ask(program.url, "hi").status_code == 200


@pytest.mark.skipif(sys.platform == "win32", reason="file modes")
def test_the_secret_is_its_owners_alone(start):
    program = start().wait_ready()
    assert stat.S_IMODE((program.data_dir / "secret.key").stat().st_mode) == 0o600


def test_app_is_cheap_to_import_for_the_engine():
    code = "import sys, app; print(sorted({'gradio', 'fastapi', 'pydantic', 'uvicorn'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
