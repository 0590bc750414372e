"""Who may run on a data folder, and what the other one is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from appliance.base.errors import StartFailed
from appliance.operate import single_instance
from appliance.operate.single_instance import AlreadyRunning, claim

URL = "http://127.0.0.1:7860"
HOLDER = """
import sys
from pathlib import Path
from appliance.operate.single_instance import claim
with claim(Path(sys.argv[1])) as claimed:
    claimed.publish(sys.argv[2])
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "running"


def holder(place: Path, root: Path, url: str = URL) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(place), url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_one_learns_the_address_of_the_first(place, project_root):
    with holder(place, project_root):
        with pytest.raises(AlreadyRunning, match=URL) as caught, claim(place):
            pass
        assert caught.value.url == URL


def test_a_claim_ends_with_its_process_however_that_ends(place, project_root):
    with holder(place, project_root) as process:
        process.kill()
        process.wait(10)
    with claim(place) as claimed:
        assert place.read_text() == "", "the address of the one that was killed is gone"
        claimed.publish(URL)
        assert place.read_text() == URL
    assert place.read_text() == ""


def test_a_claim_can_be_taken_again_after_it_was_given_up(place):
    for _ in range(2):
        with claim(place):
            pass


def test_one_that_is_only_being_started_has_no_address_yet(place, project_root, monkeypatch):
    monkeypatch.setattr(single_instance, "_READ_S", 0.0)
    with (
        holder(place, project_root, url=""),
        pytest.raises(AlreadyRunning, match="being started") as caught,
        claim(place),
    ):
        pass
    assert caught.value.url == ""


def test_a_claim_that_cannot_be_written_is_named_with_the_remedy(place):
    place.mkdir()
    with pytest.raises(StartFailed, match=r"running: cannot be written .*--data-dir"), claim(place):
        pass


def test_only_an_address_of_ours_is_passed_on(place, project_root):
    with holder(place, project_root, url="file:///etc/passwd"), pytest.raises(AlreadyRunning) as caught, claim(place):
        pass
    assert caught.value.url == ""
