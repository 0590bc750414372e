"""Nothing the program serves names a host elsewhere: not the pages, their heads and styles, nor what they ask for."""

from __future__ import annotations

import re

import httpx

from tests.system.program import Program, command

HOST = re.compile(r"(?:https?:)?//([A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,})")
NO_ADDRESS = {"www.w3.org"}
"""The name of a format, which nobody looks up."""
PATHS = (
    "/",
    "/config",
    "/theme.css",
    "/manifest.json",
    "/robots.txt",
    "/gradio_api/app_id",
    "/gradio_api/startup-events",
    "/login",
    "/admin/login",
    "/admin/first-run",
    "/admin/en/",
    "/admin/zh/",
    "/admin/en/config",
    "/admin/zh/config",
    "/nothing",
    "/health",
    "/ready",
    "/room",
    "/here?token=x",
)


def foreign(text: str) -> set[str]:
    return set(HOST.findall(text)) - NO_ADDRESS


def test_no_page_names_a_host_elsewhere(start):
    program = start().wait_ready()
    with httpx.Client(base_url=program.url, trust_env=False, headers={"accept": "text/html"}) as http:
        http.get(program.owners_link("/").removeprefix(program.url))
        for path in PATHS:
            assert foreign(http.get(path).text) == set(), path


def test_the_login_pages_do_not_either(start, tmp_path):
    command(tmp_path / "data", "set-admin-password", typed="long enough\n")
    command(tmp_path / "data", "set-passcode", typed="open sesame\n")
    program: Program = start(access="passcode")
    with httpx.Client(base_url=program.url, trust_env=False, headers={"accept": "text/html"}) as http:
        while program.status("/health") != 200:
            assert program.process.poll() is None
        for path in ("/login", "/admin/login", "/config"):
            assert foreign(http.get(path).text) == set(), path


def test_a_link_in_a_messenger_shows_our_title_and_picture(echo):
    page = httpx.get(echo.url, trust_env=False).text
    shown = dict(re.findall(r'<meta property="(og:[a-z]+)" content="([^"]*)"', page))
    assert "Office Chat" in shown["og:title"]
    assert "办公室" in shown["og:title"]
    assert shown["og:image"] == f"{echo.url}/favicon.ico"
    assert httpx.get(shown["og:image"], trust_env=False).headers["content-type"] == "image/png"
    assert "gradio" not in "".join(shown.values()).lower()
    assert "twitter" not in page
