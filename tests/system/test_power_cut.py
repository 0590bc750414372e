"""A power cut between write and rename, or a worn disk: every file the program keeps, cut anywhere, emptied or garbled.

The program starts without a human, says so, and lets nobody in whom it would not have let in before.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest

from tests.system.program import Program, command, free_port

ADMIN, PASSCODE = "correct horse", "open sesame"
SETTINGS = '# ours\nbackend = "echo"\nopen_browser = false\nlan_name = ""\naccess = "passcode"\nport = {port}\n'
BLOCKED = '[[rule]]\nwords = ["secret project"]\nsentence = "Not here."\n'
FILES = (
    "office-chat.toml",
    "passwords.json",
    "api-keys.json",
    "front-door.json",
    "secret.key",
    "schema",
    "block_list.toml",
    "quick_answers.toml",
)


class Office:
    """A data folder as a program that ran has left it, and starts from copies of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.port = free_port()
        (folder / "office-chat.toml").write_text(SETTINGS.format(port=self.port))
        (folder / "block_list.toml").write_text(BLOCKED)
        (folder / "quick_answers.toml").write_text('[[rule]]\nquestions = ["hi"]\nanswer = "Hi."\n')
        command(folder, "set-admin-password", typed=ADMIN + "\n")
        command(folder, "set-passcode", typed=PASSCODE + "\n")
        self.key = command(folder, "add-key", "ann").split()[0]
        program = self.start(folder)
        program.terminate()
        program.close()
        assert sorted(path.name for path in folder.glob("*.good")) == sorted(f"{name}.good" for name in FILES)

    def start(self, folder: Path) -> Program:
        return Program(folder, port=self.port, reads_file=True).wait_ready(self.key)


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Office:
    return Office(tmp_path_factory.mktemp("office") / "data")


def spoilt(content: bytes, how: str) -> bytes:
    return {
        "emptied": b"",
        "cut at the beginning": content[:1],
        "cut in the middle": content[: len(content) // 2],
        "cut before the last line": b"".join(content.splitlines(keepends=True)[:-1]),
        "cut at the end": content[:-2],
        "zeros": bytes(len(content)),
        "garbled": bytes(byte ^ 0xA5 for byte in content),
    }[how]


HOW = ("emptied", "cut at the beginning", "cut in the middle", "cut before the last line", "cut at the end", "zeros")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", [*HOW, "garbled"])
def test_every_file_at_once_may_be_spoilt_and_nobody_more_gets_in(office, tmp_path, how):
    folder = tmp_path / "data"
    shutil.copytree(office.folder, folder)
    for name in FILES:
        if (content := spoilt((folder / name).read_bytes(), how)) != (folder / name).read_bytes():
            (folder / name).write_bytes(content)
    program = office.start(folder)
    try:
        with httpx.Client(base_url=program.url, trust_env=False) as http:
            assert http.get("/config").status_code == 401, "the passcode is asked for"
            assert http.get("/admin/status").status_code == 401
            assert http.post("/login", data={"password": "wrong one"}).status_code == 403
            assert http.post("/login", data={"password": PASSCODE}).status_code == 303
            assert http.post("/admin/login", data={"password": ADMIN}).status_code == 303
            assert http.get("/admin/status").json()["admin_password_set"] is True
            told = {"Authorization": f"Bearer {office.key}"}
            body = {"messages": [{"role": "user", "content": "the secret project"}]}
            answer = http.post("/v1/chat/completions", json=body, headers=told)
            assert answer.json()["choices"][0]["message"]["content"] == "Not here."
        program.terminate()
        printed = program.output()
        assert "Damaged, perhaps by a power cut" in printed
        assert "Traceback" not in printed
        assert (folder / "office-chat.toml").read_bytes() == (office.folder / "office-chat.toml").read_bytes()
        assert (folder / "office-chat.toml.damaged").exists()
    finally:
        program.close()


def test_what_an_owner_deletes_or_changes_is_no_damage(office, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(office.folder, folder)
    (folder / "passwords.json").unlink()
    (folder / "office-chat.toml").write_text(SETTINGS.format(port=office.port).replace('"passcode"', '"open"'))
    (folder / "block_list.toml").unlink()
    program = office.start(folder)
    try:
        with httpx.Client(base_url=program.url, trust_env=False) as http:
            assert http.get("/config").status_code == 200
        assert list(folder.glob("*.damaged")) == []
    finally:
        program.close()


def test_a_file_that_could_never_be_read_stops_the_start_with_what_is_wrong(start, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "office-chat.toml").write_text("port = = 1\n")
    program = start()
    assert program.process.wait(30) == 1
    assert "is not valid TOML" in program.output()
