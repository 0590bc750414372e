"""The address that is handed out, seen from another PC: two network namespaces of the test's own, one of them ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zxingcpp
from PIL import Image

from tests.system.program import ENGINE_ALONE, ROOT, START_S

ADDRESS, LATER, COLLEAGUE, CONTAINERS = "10.213.78.1", "10.213.78.9", "10.213.78.2", "172.17.0.1"

OPEN = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Host": sys.argv[2]} if len(sys.argv) > 2 else {})
with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
    print(answer.status, "Office Chat" in answer.read().decode())
"""
RESOLVE = """
import sys, time, zeroconf
running = zeroconf.Zeroconf(interfaces=[sys.argv[1]])
asked = zeroconf.AddressResolverIPv4("office-chat.local.")
while not asked.request(running, 1000):
    pass
print(*asked.parsed_addresses())
running.close()
"""


def ip(*words: str) -> int:
    return subprocess.run(["ip", *words], capture_output=True).returncode


class Office:
    """This PC and a colleague's, on one network; this PC has an adapter for containers too."""

    def __init__(self) -> None:
        self.ours, self.theirs = (f"door{os.getpid() % 10_000}{end}" for end in "ab")

    def build(self) -> None:
        for name in (self.ours, self.theirs):
            if ip("netns", "add", name):
                pytest.skip("this machine gives no network namespaces")
            ip("-n", name, "link", "set", "lo", "up")
        for here, there in (("lan0", "lan0"), ("docker0", "other0")):
            if ip("-n", self.ours, "link", "add", here, "type", "veth", "peer", "name", there, "netns", self.theirs):
                pytest.skip("this machine gives no pairs of adapters")
            ip("-n", self.theirs, "link", "set", there, "up")
        ip("-n", self.theirs, "addr", "add", f"{COLLEAGUE}/24", "dev", "lan0")
        ip("-n", self.ours, "addr", "add", f"{CONTAINERS}/16", "dev", "docker0")
        ip("-n", self.ours, "link", "set", "docker0", "up")
        self.give(ADDRESS)

    def give(self, address: str) -> None:
        """Our address on the office network from now on."""
        ip("-n", self.ours, "addr", "flush", "dev", "lan0")
        ip("-n", self.ours, "addr", "add", f"{address}/24", "dev", "lan0")
        ip("-n", self.ours, "link", "set", "lan0", "up")

    def colleague(self, script: str, *words: str) -> str:
        """Run it on the colleague's PC; gives what it printed."""
        command = ["ip", "netns", "exec", self.theirs, sys.executable, "-c", script, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self, data_dir: Path, printed: Path, **settings: str) -> subprocess.Popen[bytes]:
        """Start the program on our PC and wait until it has said where it is."""
        chosen = {name: str(value) for name, value in ({"backend": "echo"} | ENGINE_ALONE | settings).items()}
        env = os.environ | {f"OFFICE_CHAT_{name.upper()}": value for name, value in chosen.items()}
        command = [sys.executable, "app.py", "--no-browser", "--data-dir", str(data_dir)]
        with printed.open("wb") as file:
            program = subprocess.Popen(
                ["ip", "netns", "exec", self.ours, *command],
                cwd=ROOT,
                env=env | {"PYTHONUTF8": "1"},
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        until = time.monotonic() + START_S
        while "For colleagues" not in printed.read_text() or not printed.read_text().endswith("▀\n"):
            assert program.poll() is None, printed.read_text()
            if time.monotonic() > until:
                program.kill()
                pytest.fail(f"not ready in time: {printed.read_text()}")
            time.sleep(0.1)
        return program

    def remove(self) -> None:
        for name in (self.ours, self.theirs):
            ip("netns", "del", name)


@pytest.fixture
def office() -> Iterator[Office]:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root on Linux")
    built = Office()
    try:
        built.build()
        yield built
    finally:
        built.remove()


def read_code(printed: str) -> str:
    """What a phone reads of the code in what was printed."""
    lines = [line for line in printed.splitlines() if line and not line.strip("█▀▄ ")]
    squares = {" ": (0, 0), "▀": (255, 0), "▄": (0, 255), "█": (255, 255)}
    image = Image.new("L", (len(lines[0]), 2 * len(lines)), 255)
    for row, line in enumerate(lines):
        for column, character in enumerate(line):
            for half in (0, 1):
                image.putpixel((column, 2 * row + half), squares[character][half])
    (found,) = zxingcpp.read_barcodes(image.resize((image.width * 8, image.height * 8), Image.Resampling.NEAREST))
    return str(found.text)


def end(program: subprocess.Popen[bytes]) -> None:
    program.terminate()
    assert program.wait(15) == 0


def test_the_address_printed_opens_from_another_pc_and_is_named_when_it_changes(office, tmp_path):
    url = f"http://{ADDRESS}:7860"
    printed = tmp_path / "printed.txt"
    program = office.start(tmp_path / "data", printed)
    try:
        text = printed.read_text()
        assert [line for line in text.splitlines() if "For colleagues" in line] == [f"  For colleagues: {url}"]
        assert CONTAINERS not in text
        assert read_code(text) == url
        assert office.colleague(OPEN, url) == "200 True"
        assert office.colleague(RESOLVE, COLLEAGUE) == ADDRESS
        assert office.colleague(OPEN, url, "office-chat.local:7860") == "200 True"
        assert "WARNING" not in (tmp_path / "data" / "logs" / "office-chat.log").read_text()
    finally:
        end(program)
    office.give(LATER)
    program = office.start(tmp_path / "data", printed, lan_name="")
    try:
        text = printed.read_text()
        assert f"The address has changed: it was {url}." in text
        assert read_code(text) == f"http://{LATER}:7860"
        assert office.colleague(OPEN, f"http://{LATER}:7860") == "200 True"
    finally:
        end(program)
