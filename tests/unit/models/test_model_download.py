"""A download from a hub of the tests' own: whole, gone on with, refused, and never without being asked."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.models import model_download
from appliance.models.hub import Fetch, _surroundings
from appliance.models.model_download import OFFERS, DownloadFailed, ModelDownload, Offer
from tests.unit.models.test_model_file import write
from tests.unit.own_hub import FILE, REPO, OwnHub, own_hub

MB = 2**20
OFFER = Offer(REPO, FILE, 1000, "apache-2.0", 1000)


@pytest.fixture
def content(tmp_path) -> bytes:
    return write(tmp_path / "made.gguf").read_bytes() + bytes(3 * MB)


@pytest.fixture
def hub(content) -> Iterator[OwnHub]:
    with own_hub(content) as running:
        yield running


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def download(hub, folder) -> ModelDownload:
    return ModelDownload(folder, hub.url, "")


async def failed(download: ModelDownload) -> DownloadFailed:
    with pytest.raises(DownloadFailed) as caught:
        await download.run(OFFER)
    assert download.state.phase in ("failed", "stopped")
    assert download.state.code == caught.value.code
    return caught.value


async def until_loading(download: ModelDownload, n_bytes: int) -> None:
    async with asyncio.timeout(30):
        while download.state.n_bytes < n_bytes or download.state.phase != "loading":  # noqa: ASYNC110 -- no event tells
            await asyncio.sleep(0.02)


async def test_a_model_comes_whole_with_the_hash_the_hub_gives(hub, download, folder, content):
    path = await download.run(OFFER)
    assert path == folder / FILE
    assert path.read_bytes() == content
    assert (download.state.phase, download.state.n_bytes, download.state.size_bytes) == (
        "done",
        len(content),
        len(content),
    )
    assert [file.name for file in folder.iterdir()] == [FILE]
    assert [(method, wanted) for method, _, wanted in hub.asked] == [("HEAD", ""), ("GET", "")]


async def test_nothing_is_asked_of_anybody_before_the_owner_does(hub, download):
    assert download.state.phase == "idle"
    await asyncio.sleep(0.1)
    assert hub.asked == []


async def test_a_connection_that_is_cut_is_gone_on_with_at_once(hub, download, content):
    hub.cut_after = MB
    path = await download.run(OFFER)
    assert path.read_bytes() == content
    assert hub.asked[-1][2] == f"bytes={MB}-"


async def test_a_download_that_was_stopped_goes_on_later_from_where_it_was(hub, download, folder, content):
    hub.holds_after = MB
    running = asyncio.create_task(download.run(OFFER))
    await until_loading(download, 1)
    download.stop()
    with pytest.raises(DownloadFailed):
        await running
    assert download.state.phase == "stopped"
    (part,) = folder.iterdir()
    n_there = part.stat().st_size
    assert part.suffix == ".part"
    hub.holds_after = None
    hub.released.set()
    again = ModelDownload(folder, hub.url, "")  # as after a restart of the program
    assert (await again.run(OFFER)).read_bytes() == content
    assert hub.asked[-1][2] == f"bytes={n_there}-"


async def test_what_was_begun_of_an_older_file_is_not_mixed_with_the_newer_one(hub, download, folder, content):
    (folder / f"{FILE}.{'0' * 16}.part").write_bytes(b"GGUF of before")
    assert (await download.run(OFFER)).read_bytes() == content
    assert [file.name for file in folder.iterdir()] == [FILE]


async def test_another_content_than_the_hub_promised_is_thrown_away(hub, download, folder):
    hub.digest = hashlib.sha256(b"something else").hexdigest()
    assert (await failed(download)).code == "wrong_hash"
    assert list(folder.iterdir()) == []


async def test_a_file_that_is_no_model_is_thrown_away(folder):
    with own_hub(b"<html>" * 100) as hub:
        assert (await failed(ModelDownload(folder, hub.url, ""))).code == "no_model"
    assert list(folder.iterdir()) == []


async def test_without_a_hash_nothing_is_taken(hub, download, folder):
    hub.digest = ""
    assert (await failed(download)).code == "no_hash"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(("status", "code"), [(404, "not_found"), (403, "refused"), (401, "refused")])
async def test_what_the_hub_refuses_is_said(hub, download, status, code):
    hub.status = status
    error = await failed(download)
    assert (error.code, error.values["status"]) == (code, status)


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "http://no-such-hub.invalid"])
async def test_without_a_network_there_is_a_sentence_within_five_seconds(folder, endpoint):
    async with asyncio.timeout(5):
        assert (await failed(ModelDownload(folder, endpoint, ""))).code == "no_network"


async def test_a_hub_that_never_answers_is_no_network(hub, download):
    hub.is_silent = True
    assert (await failed(download)).code == "no_network"


@pytest.mark.parametrize(("began_s", "left_s"), [(0.5, 4.1), (1.5, 3.1), (10.0, 2.5)])
def test_the_sentence_comes_within_five_seconds_unless_the_pc_is_busy(began_s, left_s):
    """`began_s`: after so long the process that asks is there."""
    assert model_download._answer_by(100.0, 100.0 + began_s) == pytest.approx(100.0 + began_s + left_s)


async def test_a_disk_that_is_too_full_is_named_before_anything_comes(hub, folder):
    hub_content_mb = 10**9
    hub.content = SizedOnly(hub.content, hub_content_mb * 10**6)
    error = await failed(ModelDownload(folder, hub.url, ""))
    assert error.code == "disk"
    assert int(str(error.values["need_mb"])) > hub_content_mb
    assert [method for method, _, _ in hub.asked] == ["HEAD"]
    assert list(folder.iterdir()) == []


class SizedOnly(bytes):
    """Says that it is longer than it is."""

    size: int

    def __new__(cls, content: bytes, size: int) -> SizedOnly:
        made = super().__new__(cls, content)
        made.size = size
        return made

    def __len__(self) -> int:
        return self.size


async def test_the_proxy_of_the_settings_is_used(hub, folder, content):
    path = await ModelDownload(folder, "http://hub.invalid", hub.url).run(OFFER)
    assert path.read_bytes() == content
    assert [url.split("/")[2] for _, url, _ in hub.asked] == ["hub.invalid", "cdn.invalid"]


async def test_one_at_a_time_and_never_over_a_model_that_is_there(hub, download, folder):
    hub.holds_after = MB
    running = asyncio.create_task(download.run(OFFER))
    await until_loading(download, 1)
    with pytest.raises(DownloadFailed) as caught:
        await download.run(OFFER)
    assert caught.value.code == "running"
    hub.released.set()
    await running
    assert (await failed(download)).code == "there"


def test_nothing_of_this_users_hub_account_or_proxies_is_passed_on(monkeypatch, tmp_path):
    monkeypatch.setattr(
        os, "environ", {"HF_TOKEN": "hf_x", "https_proxy": "http://p", "ALL_PROXY": "x", "HF_HUB_OFFLINE": "1"}
    )
    monkeypatch.setattr("logging.disable", lambda _level: None)
    monkeypatch.setattr("sys.stderr", None)
    _surroundings(Fetch(REPO, FILE, tmp_path))
    assert not {"HF_TOKEN", "https_proxy", "ALL_PROXY", "HF_HUB_OFFLINE", "HTTPS_PROXY"} & os.environ.keys()
    assert os.environ["HF_HUB_DISABLE_TELEMETRY"] == "1"


def test_the_model_this_program_is_made_for_is_the_first_on_the_list():
    assert OFFERS[0].file.startswith("qwen2.5-0.5b-instruct")
    assert all(offer.licence == "apache-2.0" and offer.file.endswith(".gguf") for offer in OFFERS)
    assert OFFERS[1].n_weights > OFFERS[0].n_weights
