"""Starts the office chat appliance: flags, settings, engine, page, server, and a drained exit.

Nothing heavy is imported at the top: the engine's process imports this file too, and the engine is to load
while this process still imports Gradio.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from appliance import __version__
from appliance.base import terminal
from appliance.base.errors import ApplianceError

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI

    from appliance.base.paths import Paths
    from appliance.lifecycle import Appliance
    from appliance.operate.single_instance import Claim
    from appliance.settings.files import Sources
    from appliance.settings.schema import Settings
    from ui.site.interface import Page

_log = logging.getLogger("app")


def main(argv: Sequence[str] | None = None) -> int:
    """Run until told to end. Returns the exit code: 0 after a drain, 1 with a sentence when it cannot run."""
    began = time.monotonic()
    terminal.settle()
    _give_children_the_systems_libraries()
    for number in terminal.ending_signals():
        signal.signal(number, _end_early)
    given = _given(argv)
    command = given.pop("command", None)
    try:
        if command is not None:
            run_command(command, given)
        else:
            run(given, began)
    except ApplianceError as error:
        terminal.say(f"Office Chat cannot {'start' if command is None else 'do that'}: {error}", to_errors=True)
        terminal.hold_window()
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def run(flags: dict[str, Any], began: float) -> None:
    """Everything in order; raises ApplianceError with a sentence for the owner."""
    from appliance.access.this_pc import new_link
    from appliance.base.paths import Paths
    from appliance.operate.single_instance import AlreadyRunning, claim
    from appliance.operate.upgrade import bring_up_to_date
    from appliance.settings.files import find_sources, read_settings
    from appliance.tuning.kernel_file import remember
    from ui.site import console

    config, retries = flags.pop("config", None), flags.pop("retry_kernels", False)
    sources = find_sources(os.environ, flags, Path(config) if config else None)
    settings = read_settings(sources)
    paths = Paths(Path(settings.data_dir))
    paths.prepare()
    try:
        with claim(paths.running) as claimed:
            bring_up_to_date(paths.data_dir)
            if retries:
                remember(paths.tuned, ())
            is_wanted_again = run_alone(settings, sources, paths, began, claimed)
        if is_wanted_again:  # now that the folder is free
            _start_again()
    except AlreadyRunning as other:
        console.say_in_both("console_already", url=other.url or "...")
        if settings.open_browser and other.url:
            console.open_browser(other.url + new_link(paths.links, "/"))


def run_alone(settings: Settings, sources: Sources, paths: Paths, began: float, claimed: Claim) -> bool:
    """The only program on this data folder; returns whether to begin anew. Raises ApplianceError with a sentence."""
    from appliance.base.log import open_log
    from appliance.lifecycle import Appliance
    from appliance.operate.crash_report import write_when_it_crashes
    from ui.site import console

    open_log(paths.logs)
    write_when_it_crashes(paths.logs, console.say_crashed)
    appliance = Appliance(settings, paths, sources)
    with appliance.door.open() as sock:
        claimed.publish(appliance.door.own_url)
        appliance.spawn()
        try:
            console.say_in_both("console_starting")
            app, page = build_page(appliance, paths)
            return asyncio.run(serve(appliance, app, page, sock, began))
        finally:
            appliance.kill_engine()  # on a signal while Gradio is imported nobody else does


def run_command(name: str, given: dict[str, Any]) -> None:
    """What the owner does beside the running program; raises ApplianceError with a sentence."""
    from appliance.base.paths import Paths
    from appliance.operate.owner_commands import COMMANDS
    from appliance.operate.single_instance import claim
    from appliance.operate.upgrade import bring_up_to_date, is_up_to_date
    from appliance.settings.files import load_settings

    config = given.pop("config", None)
    flags: dict[str, Any] = {key: given[key] for key in ("data_dir", "model") if key in given}
    settings = load_settings(os.environ, flags, Path(config) if config else None)
    paths = Paths(Path(settings.data_dir))
    paths.prepare()
    if not is_up_to_date(paths.data_dir):
        with claim(paths.running):
            bring_up_to_date(paths.data_dir)
    COMMANDS[name].run(settings, paths, argparse.Namespace(**given), terminal.say)


def build_page(appliance: Appliance, paths: Paths) -> tuple[FastAPI, Page]:
    """Import Gradio and mount the page behind our own routes. Returns the app and the page, which has an end too."""
    _prepare_gradio(paths)
    from appliance.http.api import make_router
    from appliance.http.event_stream import make_stream_router
    from appliance.http.page_routes import make_page_router
    from appliance.http.throttle import Accounts
    from appliance.http.web import make_app
    from ui.admin import page as admin_page
    from ui.admin.first_run import make_first_run_router, parts_of
    from ui.admin.model_upload import make_upload_router
    from ui.site import interface
    from ui.site.login_page import make_login_router
    from ui.words.messages import in_both

    settings, chat, persons = appliance.settings, appliance.chat, appliance.persons
    limits = appliance.limits

    def language() -> str:
        return chat.settings.language

    routers = [
        make_router(chat, persons, settings, limits),
        make_stream_router(chat, settings, limits),
        make_page_router(chat, persons, settings),
        make_login_router(appliance.access, limits, language),
        make_first_run_router(parts_of(appliance)),
        make_upload_router(appliance.models, language),
    ]
    accounts = Accounts(lambda: appliance.limits.address_share, appliance.access.is_owners)
    app = make_app(routers, persons, appliance.access, in_both, accounts)
    admin_page.mount(app, appliance, language)
    page = interface.build(chat, settings, persons, limits)
    interface.mount(app, page, settings, persons)
    appliance.store.users.append(page.use)
    return app, page


async def serve(appliance: Appliance, app: FastAPI, page: Page, sock: socket.socket, began: float) -> bool:
    """Answer until a signal comes or the admin asks for a restart; then drain and close.

    Returns whether to begin anew. Raises ApplianceError when it cannot begin.
    """
    from appliance.network.server import Server, server_config, start_failed
    from ui.site import console

    host, port = appliance.settings.host, appliance.door.port

    async def before_shutdown() -> None:
        appliance.chat.refuse_new()
        page.send_waiters_away()
        await appliance.drain()
        # Without this the page's streams never end; before the drain it would cut answers off.
        await page.close()

    server = Server(server_config(app, host, port, app.state.accounts.charge), before_shutdown)
    is_wanted_again = False

    def start_again() -> None:
        nonlocal is_wanted_again
        is_wanted_again = server.should_exit = True

    appliance.admin_service.start_again = start_again
    await appliance.start()
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    announcing = asyncio.create_task(console.announce(appliance, began))
    try:
        await asyncio.wait({serving, announcing}, return_when=asyncio.FIRST_COMPLETED)
        if announcing.done() and announcing.exception() is not None:
            server.should_exit = True
        await serving
        if announcing.done():
            announcing.result()
    except OSError as error:
        raise start_failed(error, host, port) from error
    finally:
        announcing.cancel()
        await appliance.close()
    return is_wanted_again


def _start_again() -> None:
    """Begin anew in place of this process, with the flags it was started with and the settings as they are now."""
    from ui.site import console

    os.environ[console.RESTARTED] = "1"
    logging.shutdown()
    if sys.platform == "win32":  # there, exec leaves the console to whoever waits for the first process
        subprocess.Popen(sys.orig_argv)
    else:
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606 -- our own command line, and no shell


def _prepare_gradio(paths: Paths) -> None:
    """What Gradio and its libraries read from the environment while they are imported."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["GRADIO_TEMP_DIR"] = str(paths.temp)
    os.environ.setdefault("PATH", os.defpath)  # one of them reads it without a default
    # Gradio makes an HTTP client when it is imported, and an unknown kind of proxy makes that raise. We call nobody.
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]


def _given(argv: Sequence[str] | None) -> dict[str, Any]:
    """The command, if any, and the settings given as flags, as text; the settings table judges the values."""
    from appliance.operate.owner_commands import COMMANDS

    parser = argparse.ArgumentParser(
        prog="office-chat" if getattr(sys, "frozen", False) else "app.py",
        description="Chat with a small language model on the office network. Without a command it starts.",
    )
    parser.add_argument("--version", action="version", version=f"Office Chat {__version__}")
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--port", help="port to listen on")
    _add_model(parser)
    parser.add_argument(
        "--no-browser", dest="open_browser", action="store_const", const=False, help="open no page here"
    )
    parser.add_argument(
        "--retry-kernels", action="store_const", const=True, help="try all of llama.cpp's kernels again that failed"
    )
    _add_places(parser)
    commands = parser.add_subparsers(dest="command", title="commands", metavar="")
    for name, command in COMMANDS.items():
        words = commands.add_parser(name, help=command.help, description=command.help)
        if command.takes_name:
            words.add_argument("name", help="whose key")
        if command.takes_model:
            _add_model(words)
        _add_places(words)
    return {name: value for name, value in vars(parser.parse_args(argv)).items() if value is not None}


def _add_places(parser: argparse.ArgumentParser) -> None:
    """Flags that may stand before and after a command. Without SUPPRESS the one after it would undo the one before."""
    parser.add_argument("--data-dir", default=argparse.SUPPRESS, help="folder for models, logs and settings")
    parser.add_argument(
        "--config", default=argparse.SUPPRESS, help="settings file (TOML) instead of the one in the data folder"
    )


def _add_model(parser: argparse.ArgumentParser) -> None:
    words = "GGUF file that answers: a path, or a name in the models folder"
    parser.add_argument("--model", default=argparse.SUPPRESS, help=words)


def _give_children_the_systems_libraries() -> None:
    """The frozen program's loader names its own libraries for us; a browser that we open must not get them."""
    if getattr(sys, "frozen", False) and "LD_LIBRARY_PATH" in os.environ:
        os.environ["LD_LIBRARY_PATH"] = os.environ.pop("LD_LIBRARY_PATH_ORIG", "")
        if not os.environ["LD_LIBRARY_PATH"]:
            del os.environ["LD_LIBRARY_PATH"]


def _end_early(_number: int, _frame: FrameType | None) -> None:
    """Told to end before the server listens for it: nothing to drain yet."""
    raise SystemExit(0)


if __name__ == "__main__":
    multiprocessing.freeze_support()
    sys.exit(main())
