"""Runs the frozen program out of its archive as the worst office would: no environment, no rights, odd folders.

`python packaging/selftest.py ARCHIVE --model GGUF [--one-file FILE]`. Prints one line a check; the first that does not
hold ends it with exit code 1. Standard library only, so that it runs on every system the program is built on.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import bundle
from console import SetupError
from frozen_program import (
    END_S,
    Browser,
    NotPassed,
    Run,
    as_nobody,
    empty_environment,
    family,
    free_port,
    give_to_nobody,
    is_alive,
    is_free,
    may_be_nobody,
)
from traced_files import STRACE, opened, outside, reached

ODD = "办公 聊天　a & b"  # Chinese, a space, an ideographic space and an ampersand
ADMIN_PASSWORD = "correct horse battery"  # noqa: S105 -- of a program that lives for a minute
QUIET = 'lan_name = ""\nanswer_cache_scope = "off"\nquick_answers = false\nkeyless_here = true\n'
IS_LINUX = sys.platform == "linux"


class SelfTest:
    """The checks, in order; each is a method whose docstring is what it holds."""

    def __init__(self, archive: Path, model: Path, one_file: Path | None, place: Path) -> None:
        self.place = place
        self.model = model
        self.one_file = one_file
        self.folder = bundle.unpack(archive, place / ODD)
        name = "office-chat.exe" if os.name == "nt" else "office-chat"
        self.program = self.folder / name
        self._runs: list[Run] = []
        self._n_data = 0
        for path in (self.folder, *self.folder.rglob("*")):
            if os.name == "posix":
                path.chmod(0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444)

    def data_dir(self) -> Path:
        """A fresh data folder for the account the program runs as."""
        self._n_data += 1
        folder = self.place / f"数据 {self._n_data}"
        folder.mkdir()
        (folder / "office-chat.toml").write_text(QUIET, encoding="utf-8")
        give_to_nobody(folder)
        return folder

    def start(self, data_dir: Path, *flags: str, **more: object) -> Run:
        """Start it; ended with the test at the latest."""
        run = Run([self.program], data_dir, *flags, **more)  # type: ignore[arg-type]
        self._runs.append(run)
        return run

    def close(self) -> None:
        for run in self._runs:
            run.close()

    def command(self, data_dir: Path, *words: str, typed: str = "") -> str:
        """One of the owner's commands; returns what it printed."""
        done = subprocess.run(
            [str(self.program), *words, "--data-dir", str(data_dir)],
            env=empty_environment(),
            input=typed.encode(),
            capture_output=True,
            check=False,
            timeout=120,
            **as_nobody(),
        )
        if done.returncode:
            raise NotPassed(f"{words[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
        return str(done.stdout.decode("utf-8", errors="replace"))

    def _run_inside(self, code: str) -> str:
        """What `code` prints in the frozen Python: with these words it runs what multiprocessing asks of a Python."""
        code = f"from multiprocessing.resource_tracker import main; {code}"
        command = [str(self.program), "-B", "-S", "-I", "-c", code]
        done = subprocess.run(command, env=empty_environment(), capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise NotPassed(f"the frozen Python ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def check_what_is_inside(self) -> str:
        """the library and a kernel for every kind of CPU, licences, time zones, size"""
        kernels = bundle.check_llama(self.folder)
        size = bundle.check_size(self.folder)
        texts = len(list((self.folder / "licences").rglob("*.*")))
        if texts < 50:
            raise NotPassed(f"only {texts} licence texts")
        if not (self.folder / "LICENSE.txt").is_file():
            raise NotPassed("the licence of the program itself is missing")
        shanghai = "import zoneinfo; zoneinfo.reset_tzpath(()); print(zoneinfo.ZoneInfo('Asia/Shanghai'))"
        if self._run_inside(shanghai).strip() != "Asia/Shanghai":
            raise NotPassed("the time zones are missing")
        if links := [path for path in self.folder.rglob("*") if path.is_symlink()]:
            raise NotPassed(f"links do not survive every unpacker: {links[:3]}")
        return f"{size / 10**6:.0f} MB, {len(kernels)} kinds of CPU, {texts} licence texts"

    def check_a_day_in_the_office(self) -> str:
        """empty environment, read-only folder, odd names: page, chat, admin, API key, second start, clean end"""
        data_dir = self.data_dir()
        trace = self.place / "trace.txt"
        trace.touch()
        give_to_nobody(trace)
        is_traced = can_trace()
        before = set(Path(tempfile.gettempdir()).iterdir())
        run = self.start(data_dir, prefix=(*STRACE, "-o", str(trace)) if is_traced else ()).wait_ready()
        n_files = self._page(run)
        if not run.browser.question("Say hello."):
            raise NotPassed("an empty answer")
        n_processes = self._processes(run)
        self._rights(run, data_dir)
        self._second_start(run, data_dir)
        if (code := run.stop()) != 0:
            raise NotPassed(f"a clean end has exit code {code}: {run.output()}")
        self._nothing_left(run, [])
        if left := [path.name for path in set(Path(tempfile.gettempdir()).iterdir()) - before if "MEI" in path.name]:
            raise NotPassed(f"left in the temporary folder: {left}")
        not_seen = "NOT CHECKED, strace is missing or forbidden: which files it opens"
        seen = self._trace(trace, data_dir) if is_traced else not_seen
        text = run.output()
        for part in (run.url, "Ctrl-C", "停止"):
            if part not in text:
                raise NotPassed(f"its window does not say {part!r}: {text}")
        return f"{n_files} files of the page, {n_processes} processes; {seen}"

    def _page(self, run: Run) -> int:
        answer = run.browser.get("/")
        named = set(re.findall(r'(?:src|href)="(\.?/?(?:assets|static|theme)[^"]*)"', answer.body.decode()))
        paths = {"/", "/config", "/theme.css", "/health", "/favicon.ico", *named}
        for path in sorted(paths):
            if (status := run.browser.get(path).status) != 200:
                raise NotPassed(f"{path} answers {status}")
        return len(paths)

    def _processes(self, run: Run) -> int:
        pids = family(run.pid())
        if len(pids) > 3:  # the program, the engine, at most one helper of multiprocessing
            raise NotPassed(f"{len(pids)} processes instead of three")
        return len(pids)

    def _rights(self, run: Run, data_dir: Path) -> None:
        if (status := run.browser.get("/admin/status").status) == 200:
            raise NotPassed("/admin/status is open to any program of this PC")
        link = re.search(r"http://127\.0\.0\.1:\d+(/here\S+)", printed := self.command(data_dir, "admin-link"))
        if link is None:
            raise NotPassed(f"no link of this PC is printed: {printed}")
        owner = Browser(run.url)
        owner.get(link[1])
        if (status := owner.get("/admin/status").status) != 200:
            raise NotPassed(f"/admin/status after the link of this PC answers {status}")
        self.command(data_dir, "set-admin-password", typed=ADMIN_PASSWORD + "\n")
        if (status := run.browser.get("/admin/status").status) != 401:
            raise NotPassed(f"/admin/status without a login answers {status}")
        run.browser.post("/admin/login", [("password", ADMIN_PASSWORD), ("next", "/")])
        if (status := run.browser.get("/admin/status").status) != 200:
            raise NotPassed(f"/admin/status after the login answers {status}")
        key = self.command(data_dir, "add-key", "self-test").split()[0]
        if not run.browser.question("Say yes.", {"Authorization": f"Bearer {key}"}):
            raise NotPassed("an empty answer over the API")

    def _second_start(self, run: Run, data_dir: Path) -> None:
        second = self.start(data_dir)
        if (code := second.wait_end()) != 0 or run.url not in second.output():
            raise NotPassed(f"a second start ended with {code} and said: {second.output()}")
        if run.browser.get("/health").status != 200:
            raise NotPassed("the first program did not survive a second start")

    def _nothing_left(self, run: Run, pids: list[int]) -> None:
        until = time.monotonic() + END_S
        while time.monotonic() < until:
            left = [pid for pid in pids if is_alive(pid)]
            if not left and is_free(run.port):
                return
            time.sleep(0.1)
        raise NotPassed(f"left behind: processes {left}, port free: {is_free(run.port)}")

    def _trace(self, trace: Path, data_dir: Path) -> str:
        lines = trace.read_text(encoding="utf-8", errors="replace").splitlines()
        if calls := reached(lines):
            raise NotPassed(f"it tried to reach other computers: {calls[:5]}")
        opens = list(opened(lines))
        strangers = outside(opens, (self.folder, data_dir))
        if strangers:
            listed = "\n  ".join(f"{'write ' if each.writes else ''}{each.path}" for each in strangers[:40])
            raise NotPassed(f"it tried to open files of others:\n  {listed}")
        return f"{len(opens)} files opened, none of others, nobody called"

    def check_a_hostile_environment(self) -> str:
        """no console, PYTHONIOENCODING=gbk, proxies that do not answer, an odd temporary folder; killed, then again"""
        data_dir, temp = self.data_dir(), self.place / f"{ODD} temp"
        temp.mkdir()
        give_to_nobody(temp)
        proxy = "socks://127.0.0.1:9/"
        env = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), proxy)
        env |= {
            "PYTHONIOENCODING": "gbk",
            "LC_ALL": "zh_CN.GBK",
            "TMPDIR": str(temp),
            "TEMP": str(temp),
            "TMP": str(temp),
        }
        env |= {"PYTHONHOME": "/nowhere", "PYTHONPATH": "/nowhere", "TZ": "CST-8"}
        for _ in range(3):
            run = self.start(data_dir, env=env, streams="closed" if os.name == "posix" else "kept").wait_ready()
            if run.browser.get("/").status != 200 or not run.browser.question("Say no."):
                raise NotPassed("no page or no answer")
            pids = family(run.process.pid)
            run.process.kill()
            run.process.wait(END_S)
            self._nothing_left(run, pids)
        if left := list(temp.iterdir()):
            raise NotPassed(f"left in the temporary folder: {left}")
        log = (data_dir / "logs" / "office-chat.log").read_text(encoding="utf-8")
        if os.name == "posix" and any(" +0800 " not in line for line in log.splitlines()):
            raise NotPassed("its log does not tell the local time with its distance from UTC")
        return "three kills, nothing left behind"

    def check_what_it_cannot_use(self) -> str:
        """a model that is cut off, a web page instead of one, a taken port: named, with exit code 1"""
        whole = self.model.read_bytes()
        for name, content in (("半个 model.gguf", whole[: len(whole) // 2]), ("page.gguf", b"<!doctype html>")):
            path = self.place / name
            path.write_bytes(content)
            self._refused(("--model", str(path)), name)
        run = self.start(self.data_dir()).wait_ready()
        self._refused((), str(run.port), port=run.port)
        run.stop()
        return "each is named"

    def _refused(self, flags: tuple[str, ...], sentence: str, port: int = 0) -> None:
        run = self.start(self.data_dir(), *flags, port=port or free_port())
        if (code := run.wait_end()) != 1 or sentence not in run.output() or "Traceback" in run.output():
            raise NotPassed(f"ended with {code} and does not name {sentence!r} plainly: {run.output()}")

    def check_one_file(self) -> str:
        """the one-file form: unpacks once into its own folder, and again where something of it is missing"""
        if self.one_file is None or os.name != "posix":
            return "not looked at"
        home = self.place / f"家 {ODD}"
        home.mkdir()
        give_to_nobody(home)
        program = self.place / "office chat.run"
        shutil.copy2(self.one_file, program)
        program.chmod(0o755)
        places: list[Path] = []
        for missing in (False, False, True):
            if missing:
                next(places[0].rglob("icon.png")).unlink()
            run = Run([program], self.data_dir(), env={"HOME": str(home)})
            self._runs.append(run)
            run.wait_ready()
            if not run.browser.question("Say one."):
                raise NotPassed("an empty answer")
            if (code := run.stop()) != 0:
                raise NotPassed(f"exit code {code}: {run.output()}")
            if ("unpacking" in run.output()) != (missing or not places):
                raise NotPassed(f"unpacked at the wrong start: {run.output()}")
            places = list((home / ".local" / "share" / "office-chat-program").iterdir())
            if len(places) != 1:
                raise NotPassed(f"one folder is to be there: {places}")
        return f"unpacks into {places[0].name}"

    def checks(self) -> Iterator[Callable[[], str]]:
        yield self.check_what_is_inside
        yield self.check_a_day_in_the_office
        yield self.check_a_hostile_environment
        yield self.check_what_it_cannot_use
        yield self.check_one_file


def can_trace() -> bool:
    """Whether strace is there and may look: some containers forbid it."""
    if shutil.which("strace") is None:
        return False
    command = [*STRACE, "-o", os.devnull, "true"]
    return subprocess.run(command, capture_output=True, check=False, **as_nobody()).returncode == 0


def _open_folder() -> str | None:
    """Where another account may pass: the folder for temporary files, or one that is the same for all."""
    places = [Path(tempfile.gettempdir()), Path("/var/tmp")]  # noqa: S108 -- a fresh folder in it
    for place in places if may_be_nobody() else []:
        if all(folder.stat().st_mode & 0o001 for folder in (place, *place.parents)):
            return str(place)
    return None


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that goes with the test; the account without rights may pass through it."""
    with tempfile.TemporaryDirectory(prefix="office-chat-selftest-", dir=_open_folder()) as name:
        place = Path(name).resolve()
        place.chmod(0o755)
        yield place
        for path in place.rglob("*"):  # what was read-only has to go too
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)


def main(arguments: list[str]) -> int:
    """Exit code 0 when everything holds, else 1 with what does not."""
    parser = argparse.ArgumentParser(description="run the frozen program out of its archive")
    parser.add_argument("archive", type=Path, help="the zip with a model in it")
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file, to make broken ones of")
    parser.add_argument("--one-file", type=Path, help="the one-file form of the same program")
    given = parser.parse_args(arguments)
    with scratch() as place:
        tested = SelfTest(given.archive, given.model, given.one_file, place)
        try:
            for check in tested.checks():
                began_s = time.monotonic()
                found = check()
                print(f"  ok ({time.monotonic() - began_s:.0f} s): {check.__doc__}: {found}", flush=True)
        except (NotPassed, SetupError) as error:
            print(f"  FAILED: {check.__doc__}: {error}", file=sys.stderr, flush=True)
            return 1
        finally:
            tested.close()
    who = "as an account without rights" if may_be_nobody() else "as this account"
    print(f"  The frozen program passed its self-test, run {who}.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
