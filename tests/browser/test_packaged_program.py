"""The archive of `make package` as an office meets it: unpacked under an odd path, started with nothing in its
environment, in a network without a way out, read by a browser on another computer of that network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright import sync_api

import bundle
from frozen_program import READY_S, Run
from selftest import ADMIN_PASSWORD, ODD
from tests.browser.conftest import FLAGS
from tests.browser.driver import Chat, settled

PROGRAM_SIDE, BROWSER_SIDE = "10.213.78.1", "10.213.78.2"

pytestmark = [pytest.mark.model, pytest.mark.timeout(400)]


@dataclass(frozen=True)
class Networks:
    """What to put before the program and before the browser, and the program's address in between."""

    of_program: tuple[str, ...]
    of_browser: tuple[str, ...]
    address: str


WITHOUT_EXEC = ("/bin/sh", "-c", 'mount -t tmpfs -o noexec tmpfs "$TMPDIR"; exec "$@"', "sh")
"""`ip netns exec` gives mounts of one's own too: nothing may run in the folder for temporary files."""
ALONE = Networks((), (), "127.0.0.1")


def ip(*words: str) -> int:
    return subprocess.run(["ip", *words], capture_output=True).returncode


@pytest.fixture(scope="module")
def archive(project_root: Path) -> Path:
    found = sorted((project_root / "dist").glob("office-chat-*-linux-*-with-starter-model.zip"))
    if not found or sys.platform != "linux":
        pytest.skip("there is no archive in dist/: `make package` makes one")
    return found[-1]


@pytest.fixture(scope="module")
def networks() -> Iterator[Networks]:
    """Two namespaces that see each other and nothing else; where they cannot be had, this computer by itself."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        yield ALONE
        return
    names = (f"pack{os.getpid() % 10_000}p", f"pack{os.getpid() % 10_000}b")
    try:
        if any(ip("netns", "add", name) for name in names):
            yield ALONE
            return
        assert ip("-n", names[0], "link", "add", "lan0", "type", "veth", "peer", "name", "lan1", "netns", names[1]) == 0
        for name, link, address in zip(names, ("lan0", "lan1"), (PROGRAM_SIDE, BROWSER_SIDE), strict=True):
            ip("-n", name, "addr", "add", f"{address}/30", "dev", link)
            ip("-n", name, "link", "set", link, "up")
            ip("-n", name, "link", "set", "lo", "up")
        ip_program = shutil.which("ip") or "ip"  # an empty environment has no PATH
        yield Networks(*((ip_program, "netns", "exec", name) for name in names), address=PROGRAM_SIDE)
    finally:
        for name in names:
            ip("netns", "del", name)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packaged") / "数据　data"
    folder.mkdir()
    (folder / "office-chat.toml").write_text('answer_cache_scope = "off"\nquick_answers = false\n', encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def program(
    archive: Path, data_dir: Path, networks: Networks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    folder = bundle.unpack(archive, tmp_path_factory.mktemp("unpacked") / ODD)
    command = [str(folder / "office-chat"), "set-admin-password", "--data-dir", str(data_dir)]
    subprocess.run(command, env={}, input=ADMIN_PASSWORD.encode(), check=True, capture_output=True, timeout=120)
    run = Run(
        [folder / "office-chat"],
        data_dir,
        prefix=(*networks.of_program, *(() if networks == ALONE else WITHOUT_EXEC)),
        env={"TMPDIR": str(tmp_path_factory.mktemp("noexec"))},
        account={},
    )
    until = time.monotonic() + READY_S
    while "To stop" not in run.output():
        assert run.process.poll() is None, run.output()
        assert time.monotonic() < until, run.output()
        time.sleep(0.2)
    yield run
    try:
        assert run.stop() == 0
    finally:
        run.close()


@pytest.fixture(scope="module")
def other_computer(
    chromium: str, networks: Networks, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sync_api.BrowserContext]:
    """A browser in the second network."""
    script = tmp_path_factory.mktemp("chromium") / "chromium"
    script.write_text(f'#!/bin/sh\nexec {" ".join(networks.of_browser)} {chromium} "$@"\n')
    script.chmod(0o755)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=script, args=[flag for flag in FLAGS if "MAP" not in flag])
        yield browser.new_context(locale="zh-CN")
        browser.close()


def test_another_computer_of_the_office_chats_with_it(
    program: Run, networks: Networks, other_computer: sync_api.BrowserContext
) -> None:
    url = f"http://{networks.address}:{program.port}/"
    assert url.rstrip("/") in program.output(), "the window says the address for colleagues"
    chat = Chat(other_computer.new_page(), url).open()
    assert "Paris" in chat.ask("What is the capital of France? One word.")
    assert chat.errors == []
    assert {request.split("/")[2] for request in chat.requests if request.startswith("http")} == {
        f"{networks.address}:{program.port}"
    }


def test_there_was_no_way_out_of_its_network(program: Run, networks: Networks) -> None:
    if networks == ALONE:
        pytest.skip("not checked: network namespaces need root, iproute2 and a machine that allows them")
    routes = subprocess.run([*networks.of_program, "ip", "route"], capture_output=True, text=True, check=True).stdout
    assert "default" not in routes
    assert routes.count(" dev ") == 1, "only the network between the two"


def test_nothing_may_run_in_its_folder_for_temporary_files(program: Run) -> None:
    mounts = Path(f"/proc/{program.pid()}/mounts").read_text(encoding="utf-8").splitlines()
    if not any("noexec" in line.split()[1] and "noexec" in line.split()[3].split(",") for line in mounts):
        pytest.skip("not checked: only root may mount, and not on every machine")
    assert program.process.poll() is None


def test_its_name_is_announced_there(program: Run, networks: Networks, data_dir: Path) -> None:
    if networks == ALONE:
        pytest.skip("not checked: it would be announced in the network of this computer")
    log = data_dir / "logs" / "office-chat.log"
    settled(lambda: f"announced as office-chat.local for {PROGRAM_SIDE}" in log.read_text(encoding="utf-8"), True)


def test_its_admin_logs_in_from_there(
    program: Run, networks: Networks, other_computer: sync_api.BrowserContext
) -> None:
    page = other_computer.new_page()
    url = f"http://{networks.address}:{program.port}"
    page.goto(f"{url}/admin/login?next=/admin/status")
    page.fill("#password", ADMIN_PASSWORD)
    page.press("#password", "Enter")
    page.wait_for_url("**/admin/status")
    assert "access" in page.content()
