"""A reader whose network vanishes without a goodbye: a network namespace of the test's own, its link taken down."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

from appliance.access.api_keys import ApiKeys
from appliance.base.paths import Paths

SERVER, CLIENT = "10.213.77.1", "10.213.77.2"

READ = """
import json, sys, urllib.request
body = json.dumps({"messages": [{"role": "user", "content": "word, " * 400}], "stream": True}).encode()
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + sys.argv[2]}
request = urllib.request.Request(sys.argv[1], body, headers)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for line in opener.open(request):
    print(line.decode(), flush=True)
"""


def ip(*words: str) -> int:
    return subprocess.run(["ip", *words], capture_output=True).returncode


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace that reaches this one over a pair of virtual adapters."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root on Linux")
    name = f"chat{os.getpid() % 10_000}"
    here, there = f"{name}a", f"{name}b"
    try:
        if ip("netns", "add", name) or ip("link", "add", here, "type", "veth", "peer", "name", there):
            pytest.skip("this machine gives no network namespaces")
        ip("link", "set", there, "netns", name)
        ip("addr", "add", f"{SERVER}/30", "dev", here)
        ip("link", "set", here, "up")
        ip("-n", name, "addr", "add", f"{CLIENT}/30", "dev", there)
        ip("-n", name, "link", "set", there, "up")
        yield name
    finally:
        ip("link", "del", here)
        ip("netns", "del", name)


def test_a_vanished_network_is_noticed_within_thirty_seconds(start, namespace):
    program = start(
        max_batch_size=1,
        look_ahead=0,
        queue_size=0,
        max_input_chars=5000,
        max_context_tokens=8192,
        max_answer_tokens=4000,
    ).wait_ready()
    url = f"http://{SERVER}:{program.port}/v1/chat/completions"
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", READ, url]
    command.append(ApiKeys(Paths(program.data_dir).api_keys).add("the other PC"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert "assistant" in reader.stdout.readline()
        assert is_busy(program.url)
        ip("-n", namespace, "link", "set", f"{namespace}b", "down")
        gone = time.monotonic()
        while is_busy(program.url):
            time.sleep(0.2)
        assert time.monotonic() - gone < 30
        reader.kill()


def is_busy(url: str) -> bool:
    body = {"messages": [{"role": "user", "content": "x"}]}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60, trust_env=False).status_code == 503
