"""What the terminal says of the program: how the start goes, where the pages are, how many are being answered."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Final

from appliance import __version__
from appliance.access.this_pc import new_link
from appliance.base import terminal
from appliance.base.errors import EngineFailed, ModelFileError
from appliance.network.front_door import qr_console
from ui.words.messages import in_both

if TYPE_CHECKING:
    from appliance.engine.request import EngineInfo
    from appliance.lifecycle import Appliance
    from appliance.network.front_door import DoorView

_log = logging.getLogger(__name__)
_PROGRESS_S = 2.0
RESTARTED: Final = "OFFICE_CHAT_RESTARTED"
"""Set for a program that has started itself again: nobody at the PC waits for its page."""
FIRST_RUN: Final = "/admin/first-run"
"""What is opened on this PC until the owner has been through it. ui/admin/first_run.py has the page."""


def say_in_both(key: str, **values: object) -> None:
    """A sentence in both languages."""
    terminal.say(in_both(key, **values))


def say_crashed(report: Path) -> None:
    """The last thing the window says."""
    say_in_both("console_crashed", path=report)
    terminal.hold_window()


async def announce(appliance: Appliance, began: float) -> None:
    """Say where the page is once the engine is warm; say that it is still loading until then."""
    info = await _wait_for_model(appliance, began)
    _log.info("ready after %.1f s: %s, %s slots", time.monotonic() - began, info.model_name, info.n_slots)
    kernels = info.kernels or "none"
    _log.info("version %s; llama.cpp computes with %s: %s", __version__, kernels, info.instructions or "nothing")
    if appliance.kernels.failures:
        failed = "; ".join(map(str, appliance.kernels.failures))
        say_in_both("console_kernels", failed=failed, now=info.kernels)
    if appliance.failed_model is not None:
        say_in_both("console_model_replaced", reason=appliance.failed_model, model=info.model_name)
    if appliance.admin_service.damaged:
        say_in_both("console_damaged", names=", ".join(appliance.admin_service.damaged))
    view = await asyncio.to_thread(appliance.door.look)
    admin_page = FIRST_RUN if appliance.is_first_run else "/admin"
    admin = view.own_url + await asyncio.to_thread(_way_in, appliance, admin_page)
    _say_addresses(view, info, admin)
    if appliance.settings.open_browser and RESTARTED not in os.environ:
        page = FIRST_RUN if appliance.is_first_run else "/"
        await asyncio.to_thread(open_browser, view.own_url + new_link(appliance.access.this_pc.links, page))
    await _show_work(appliance)


def _way_in(appliance: Appliance, page: str) -> str:
    """How the owner gets to a page of the admin's: by a link that proves that it is them, until there is a password."""
    if appliance.access.passwords.is_set("admin"):
        return page
    return new_link(appliance.access.this_pc.links, page)


async def _wait_for_model(appliance: Appliance, began: float) -> EngineInfo:
    """Until one answers. Where none does the program goes on: the owner may choose another one on the admin page.

    Raises ModelFileError for a file that is no model: nobody has to look further than this terminal.
    """
    loading = asyncio.ensure_future(appliance.wait_ready())
    try:
        while not (await asyncio.wait({loading}, timeout=_PROGRESS_S))[0]:
            model = appliance.model_path.name if appliance.model_path else "the echo engine"
            terminal.say(f"Loading {model} ({time.monotonic() - began:.0f} s so far)...")
        return loading.result()
    except (EngineFailed, ModelFileError) as error:
        if isinstance(error, ModelFileError) and error.code != "kills":
            raise
        _log.error("no model answers: %s", error)
        url = appliance.door.own_url + await asyncio.to_thread(_way_in, appliance, "/admin")
        say_in_both("console_engine_failed", reason=error, url=url)
        return await appliance.wait_recovered()
    finally:
        loading.cancel()


async def _show_work(appliance: Appliance) -> None:
    """Keep saying on the terminal how many are being answered, until cancelled."""
    shown = (-1, -1)
    while True:
        now = (appliance.engine.n_running, appliance.engine.n_waiting)
        if now != shown:
            shown = now
            terminal.show(in_both("console_working", running=now[0], waiting=now[1]).replace("\n", "  "))
        await asyncio.sleep(_PROGRESS_S)


def _say_addresses(view: DoorView, info: EngineInfo, admin: str) -> None:
    """The addresses, best first, with the code of the first one and what the owner may have to do."""
    lines = [f"Ready: {info.model_name} answers.", f"  On this PC:     {view.own_url}", f"  Administration: {admin}"]
    lines += [f"  For colleagues: {url}" for url in view.urls]
    if view.is_shared and not view.urls:
        lines.append("  For colleagues: this PC is not connected to a network.")
    if view.changed_from:
        lines.append(f"  The address has changed: it was {view.changed_from}. Hand out the new one.")
    if view.urls and view.firewall.command:
        lines += [
            "  If colleagues cannot open it, this lets them through the firewall:",
            f"    {view.firewall.command}",
        ]
    elif view.urls:
        lines.append("  (If colleagues cannot open it, allow this port in this PC's firewall.)")
    terminal.say("\n".join(lines))
    say_in_both("console_stop")
    if view.urls:
        code = qr_console(view.url)
        if _can_write(code, sys.stdout.encoding):
            terminal.say(code)


def _can_write(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def open_browser(url: str) -> None:
    """Open a page on this PC where there is a screen."""
    # Without a display, Linux would open a text browser inside this console.
    if sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
