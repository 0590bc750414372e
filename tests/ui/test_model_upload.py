"""A model file sent by a browser: whole or not at all, under its own name, and judged while it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from appliance.base.errors import ModelFileError
from appliance.http.web import MAX_BODY_BYTES, BodyLimit
from appliance.models import model_upload
from appliance.models.model_upload import sweep_uploads, take_upload
from tests.unit.models.test_model_file import split, write
from tests.unit.models.test_model_library import Shelf
from ui.admin.model_upload import make_upload_router


@pytest.fixture
def shelf(tmp_path) -> Shelf:
    return Shelf(tmp_path)


@pytest.fixture
async def browser(shelf) -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()
    app.include_router(make_upload_router(shelf.library))
    app.add_middleware(BodyLimit, sentence=str)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://pc") as client:
        yield client


async def send(browser: httpx.AsyncClient, name: str, content: bytes, **headers: str) -> httpx.Response:
    return await browser.put(f"/admin/models/{name}", content=content, headers=headers)


def there(shelf: Shelf) -> list[str]:
    return sorted(path.name for path in shelf.paths.models.iterdir())


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_a_whole_model_is_there_afterwards(shelf, browser, tmp_path):
    content = write(tmp_path / "made.gguf").read_bytes()
    answer = await send(browser, "Sent-Instruct.gguf", content)
    assert (answer.status_code, answer.json()["said"]) == (
        201,
        "Sent-Instruct is here now. Choose it above to let it answer.",
    )
    assert (shelf.paths.models / "Sent-Instruct.gguf").read_bytes() == content
    assert there(shelf) == ["Sent-Instruct.gguf"]
    assert shelf.library.news.code == "brought"


async def test_a_refusal_is_in_the_language_set_now_where_the_page_names_none(shelf, tmp_path):
    chosen = ["en"]
    app = FastAPI()
    app.include_router(make_upload_router(shelf.library, lambda: chosen[0]))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://pc") as browser:
        english = await send(browser, "a.gguf", b"<html>" + b" " * 900)
        chosen[0] = "zh"
        chinese = await send(browser, "a.gguf", b"<html>" + b" " * 900)
        asked_for = await send(browser, "a.gguf", b"<html>" + b" " * 900, **{"x-lang": "en"})
    assert "is a web page" in english.json()["said"]
    assert "是网页" in chinese.json()["said"]
    assert asked_for.json() == english.json()


async def test_a_model_larger_than_any_other_request_passes(shelf, browser, starter_model):
    answer = await send(browser, "big.gguf", starter_model.read_bytes())
    assert answer.status_code == 201
    assert (shelf.paths.models / "big.gguf").stat().st_size > MAX_BODY_BYTES["/admin/"]


async def test_only_this_route_takes_more(browser):
    content = b"x" * (MAX_BODY_BYTES["/admin/"] + 1)
    assert (await browser.post("/admin/models/m.gguf", content=content)).status_code == 413
    assert (await browser.put("/admin/settings", content=content)).status_code == 413


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<html>" * 100, "is a web page"),
        (b"", "is empty"),
        (b"GGUF\x03\0\0\0", "is cut off"),
        (b"x" * 99, "not a GGUF"),
    ],
)
async def test_what_is_no_model_leaves_nothing(shelf, browser, content, words):
    answer = await send(browser, "m.gguf", content)
    assert answer.status_code == 422
    assert words in answer.json()["said"]
    assert there(shelf) == []


async def test_it_is_said_in_the_readers_language(browser):
    assert "网页" in (await send(browser, "m.gguf", b"<html>", **{"x-lang": "zh"})).json()["said"]
    assert "网页" in (await send(browser, "m.gguf", b"<html>", **{"accept-language": "zh-CN"})).json()["said"]


@pytest.mark.parametrize("name", [".hidden.gguf", "m.txt", "m.gguf.exe", "a b.gguf", "-x.gguf", "x" * 300 + ".gguf"])
async def test_a_name_that_could_be_something_else_is_refused(shelf, browser, name):
    assert (await send(browser, name, b"GGUF")).status_code == 422
    assert there(shelf) == []


@pytest.mark.parametrize("name", ["..%2Fm.gguf", "%2e%2e%2fm.gguf", "a/b.gguf"])
async def test_no_name_leads_out_of_the_folder(shelf, browser, name):
    assert (await send(browser, name, b"GGUF")).status_code in (404, 405, 422)
    assert there(shelf) == []


async def test_what_is_there_is_not_written_over(shelf, browser, tmp_path):
    before = shelf.put("m.gguf").read_bytes()
    content = write(tmp_path / "m.gguf", licence="other").read_bytes()
    assert (await send(browser, "m.gguf", content)).status_code == 422
    assert (shelf.paths.models / "m.gguf").read_bytes() == before


async def test_parts_may_come_one_after_the_other(shelf, browser, tmp_path):
    for path in split(tmp_path):
        assert (await send(browser, path.name, path.read_bytes())).status_code == 201
    assert "big" in [entry.name for entry in shelf.library.entries()]


@pytest.mark.parametrize("n_announced", [10, 10**6])
async def test_more_or_less_than_was_announced_is_refused(shelf, tmp_path, n_announced):
    content = write(tmp_path / "made.gguf").read_bytes()
    with pytest.raises(ModelFileError) as caught:
        await take_upload(shelf.paths.models, "m.gguf", n_announced, pieces(content[:100], content[100:]))
    assert caught.value.code == "broken_off"
    assert there(shelf) == []


async def test_a_long_file_that_is_no_model_is_refused_after_its_first_piece(shelf, monkeypatch):
    monkeypatch.setattr(model_upload, "_PIECE_BYTES", 100)
    taken = []

    async def endless() -> AsyncIterator[bytes]:
        while True:
            taken.append(1)
            yield b"<html>" * 20

    with pytest.raises(ModelFileError) as caught:
        await take_upload(shelf.paths.models, "m.gguf", 10**9, endless())
    assert (caught.value.code, len(taken)) == ("web_page", 1)
    assert there(shelf) == []


async def test_a_full_disk_is_named_before_anything_is_read(shelf, monkeypatch):
    monkeypatch.setattr(model_upload, "_SPARE_BYTES", 10**18)
    with pytest.raises(ModelFileError) as caught:
        await take_upload(shelf.paths.models, "m.gguf", 1, pieces())
    assert caught.value.code == "disk"


async def test_what_an_earlier_run_left_half_done_is_removed_and_nothing_else(shelf):
    keep = [shelf.put("m.gguf"), shelf.paths.models / f"d.gguf.{'0' * 16}.part"]
    keep[1].write_bytes(b"x")
    for name in ("m.gguf.0a1b2c3d.upload", "n.gguf.copy"):
        (shelf.paths.models / name).write_bytes(b"x")
    sweep_uploads(shelf.paths.models)
    assert there(shelf) == sorted(path.name for path in keep)


async def test_the_length_has_to_be_announced(browser):
    async def stream() -> AsyncIterator[bytes]:
        yield b"GGUF"

    answer = await browser.put("/admin/models/m.gguf", content=stream())
    assert answer.status_code == 411


def test_the_page_says_where_to_send_it() -> None:
    from ui.admin.models import upload_html

    html = upload_html("en")
    assert 'data-upload="/admin/models/"' in html
    assert 'data-going="{file}: {percent} %"' in html
    assert (Path(__file__).parents[2] / "ui" / "assets" / "upload.js").exists()
