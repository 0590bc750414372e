"""Builds and repairs .venv: `run` for the program, `check` and `test` for its tests too, `test-package` for those
of the packaged program; `lock` renews the lock files.

Plain Python 3.11 and its standard library, because it runs before anything is installed. Each part of the environment
has a stamp, a digest of what it was made from; a start whose stamps all fit does no work. A part that was interrupted
leaves a mark, and the whole environment is then made anew.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import debian
import llama_wheel
import locks
from console import SetupError, duration, run_logged, say
from environment import LOCKS, NEEDED_PYTHON, Environment, pins, pip_command, wheel_folders

FOR_TESTS = ("runtime", "dev", "starter", "llama")
PARTS = {
    "run": ("runtime", "starter", "llama"),
    "check": FOR_TESTS,
    "test": FOR_TESTS,
    "test-package": FOR_TESTS,
    "package": ("runtime", "freeze", "starter", "llama"),
}
LABELS = {
    "runtime": "installing Python packages",
    "dev": "installing Python packages for the tests",
    "freeze": "installing what freezes the program",
    "starter": "installing the starter model (93 MB)",
}


def parts_to_do(env: Environment, goal: str) -> list[str]:
    """Parts of `goal` that are missing or were made from something else. Quick: every start asks."""
    stamps = env.stamps()
    if not stamps:
        return ["venv", *PARTS[goal]]
    present = env.installed()
    todo = []
    for part in PARTS[goal]:
        if part == "llama":
            fits = _llama_fits(env, stamps, present)
        else:
            fits = stamps.get(part) == env.lock_digest(part) and pins(env.lock_text(part)).items() <= present.items()
        if not fits:
            todo.append(part)
    return todo


def llama_version(env: Environment) -> str:
    return pins((env.packaging / "llama.lock").read_text())["llama_cpp_python"]


def _llama_key(env: Environment) -> str:
    return llama_wheel.this_build_key(llama_version(env), env.packaging, env.any_cpu)


def _dropped_wheel(env: Environment) -> Path | None:
    if env.any_cpu:  # nothing tells what the owner's own wheel was compiled for
        return None
    wheel = llama_wheel.dropped_wheel(env.wheels, llama_version(env), platform.machine())
    is_refused = wheel is not None and env.stamps().get("refused_wheel") == llama_wheel.identity(wheel)
    return None if is_refused else wheel


def _llama_fits(env: Environment, stamps: dict[str, str], present: dict[str, str]) -> bool:
    dropped = _dropped_wheel(env)
    same_file = dropped is None or stamps.get("llama_wheel") == llama_wheel.identity(dropped)
    same_build = stamps.get("llama") == _llama_key(env)
    return same_build and same_file and present.get("llama_cpp_python") == llama_version(env)


def ready_llama_wheel(env: Environment) -> Path | None:
    """The owner's own wheel, else one compiled earlier for the same flags and CPU."""
    return _dropped_wheel(env) or llama_wheel.kept_wheel(env.wheels, _llama_key(env))


def set_up(env: Environment, todo: list[str]) -> None:
    """Do `todo`, in order. What Debian has to provide is asked for first, before minutes are spent on the rest."""
    if "venv" in todo:
        debian.provide(debian.missing_for_venv, "to make the Python environment", env.logs / "apt-venv.log")
    if "llama" in todo and ready_llama_wheel(env) is None and os.name == "posix":
        debian.provide(debian.missing_for_compiling, "to compile llama.cpp", env.logs / "apt-compiler.log")
    for part in todo:
        if part == "venv":
            _make_venv(env)
        elif part == "llama":
            _install_llama(env)
        else:
            _install_lock(env, part)


def _make_venv(env: Environment) -> None:
    if env.venv.is_symlink():
        env.venv.unlink()
    elif env.venv.exists():
        say(f"The environment in {env.folder} is unfinished, damaged or of another Python: making it anew.")
        shutil.rmtree(env.venv)
    label = f"making the Python environment in {env.folder}"
    run_logged([sys.executable, "-E", "-s", "-m", "venv", str(env.venv)], log=env.logs / "venv.log", label=label)
    env.begin_stamps()


def _install_lock(env: Environment, part: str) -> None:
    n_pins = len(pins(env.lock_text(part)))

    def progress(log: str) -> str:
        return f"{log.count('Collecting ')}/{n_pins}" if n_pins > 1 else ""

    label = LABELS[part]
    say(f"{label[0].upper()}{label[1:]}...")
    arguments = ["--require-hashes", "--only-binary=:all:", "-r", str(env.root / LOCKS[part])]
    # Files the owner carried over by hand may stand in for the network; the hashes decide.
    arguments += [f"--find-links={folder}" for folder in env.wheels if folder.is_dir()]
    took_s = _pip_install(env, arguments, env.logs / f"{part}.log", label, progress)
    env.stamp(**{part: env.lock_digest(part)})
    say(f"  done in {duration(took_s)}")


def _install_llama(env: Environment) -> None:
    """A wheel whose kernels do not compute right on this PC is not kept: one is compiled for it, once."""
    ready = ready_llama_wheel(env)
    if ready is not None:
        say(f"Using the llama.cpp wheel that is already there: {ready}")
        is_right, found = _try_wheel(env, ready)
        if is_right:
            return
        say(f"It does not run on this PC ({found}): compiling one that does.")
        env.stamp(refused_wheel=llama_wheel.identity(ready))
        if os.name == "posix":
            debian.provide(debian.missing_for_compiling, "to compile llama.cpp", env.logs / "apt-compiler.log")
    wheel = llama_wheel.compile_wheel(env.packaging, env.wheels[0] / _llama_key(env), env.logs, env.any_cpu)
    is_right, found = _try_wheel(env, wheel)
    if not is_right:
        problem = f"llama.cpp, compiled on this PC, does not run on it: {found}"
        raise SetupError(f"{problem}. Another compiler may help (CC, CXX); the wheel is {wheel}")


def _try_wheel(env: Environment, wheel: Path) -> tuple[bool, str]:
    """Install it and let its kernels compute; it is stamped as the environment's own when they are right."""
    arguments = ["--no-index", "--force-reinstall", str(wheel)]
    _pip_install(env, arguments, env.logs / "llama-install.log", "installing llama.cpp")
    is_right, found = llama_wheel.try_kernels(env.python, env.packaging, each=env.any_cpu)
    if is_right:
        say(f"  tried: {found}")
        env.stamp(llama=_llama_key(env), llama_wheel=llama_wheel.identity(wheel))
    return is_right, found


def _pip_install(
    env: Environment, arguments: list[str], log: Path, label: str, progress: Callable[[str], str] | None = None
) -> float:
    """Install into .venv; returns seconds. Leaves the environment marked as damaged if pip died while it wrote."""
    with env.being_changed():
        try:
            return run_logged(
                [*pip_command(env.python), "install", "--no-deps", *arguments], log=log, label=label, progress=progress
            )
        except SetupError:
            if "Installing collected packages" not in log.read_text(errors="replace"):
                env.was_not_changed()  # the download failed: nothing to mend
            raise


@contextlib.contextmanager
def one_at_a_time(env: Environment) -> Iterator[None]:
    """Hold the checkout's set-up lock.

    The kernel drops it when we and every command we started have ended, so none is ever left behind, and nobody takes
    an environment away from under a pip that outlived its parent.
    """
    env.logs.mkdir(parents=True, exist_ok=True)
    with (env.logs / "lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        if sys.platform == "win32":  # there only release workflows build, one in a folder
            yield
            return
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another set-up of this folder is running: waiting for it...")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ensure(env: Environment, goal: str) -> None:
    """Bring .venv to what `goal` needs; returns at once when it is there."""
    if parts_to_do(env, goal):
        with one_at_a_time(env):
            todo = parts_to_do(env, goal)
            if todo:
                started_s = time.monotonic()
                say(f"Setting up in {env.root}; later starts will not need this...")
                set_up(env, todo)
                say(f"Set-up finished in {duration(time.monotonic() - started_s)}.")
    if goal.startswith("test"):
        debian.provide(debian.missing_for_browser, "for the browser tests", env.logs / "apt-browser.log")
    if goal == "test-package":
        what = "a network without a way out, and old processors"
        debian.offer(debian.missing_for_packaged_tests, what, env.logs / "apt-packaged.log")


def check_python() -> None:
    if sys.version_info[:2] != NEEDED_PYTHON:
        found = "{}.{}.{}".format(*sys.version_info[:3])
        raise SetupError(
            f"Python 3.11 is needed and {sys.executable} is {found}. Please install it (sudo apt-get install "
            "python3.11) or name it: make run PYTHON=/path/to/python3.11"
        )


def _ended(number: int, _frame: FrameType | None) -> None:
    """A signal becomes an exception, so that compilers are ended and scratch folders removed on the way out."""
    raise SystemExit(128 + number)


def end_on_signals() -> None:
    for name in ("SIGTERM", "SIGHUP"):
        if (number := getattr(signal, name, None)) is not None:
            signal.signal(number, _ended)


def main(arguments: list[str]) -> int:
    """Exit code 0, 1 with one sentence, or 128 + signal."""
    end_on_signals()
    root = Path(__file__).resolve().parent.parent
    try:
        check_python()
        env = Environment(root, wheel_folders(root, os.environ.get("OFFICE_CHAT_WHEELS")))
        if len(arguments) == 1 and arguments[0] in ("run", "check", "test", "test-package"):
            ensure(env, arguments[0])
        elif arguments in (["lock"], ["lock", "--upgrade"]):
            locks.renew(root, upgrade="--upgrade" in arguments)
        else:
            raise SetupError("usage: setup_env.py run | check | test | test-package | lock [--upgrade]")
    except SetupError as error:
        return _stopped(str(error))
    except PermissionError as error:
        return _stopped(f"{error.filename} cannot be written. Please give this user the right to write in {root}.")
    except (OSError, subprocess.CalledProcessError) as error:
        return _stopped(str(error))
    except KeyboardInterrupt:
        print("\nSet-up interrupted; the next start takes it up again.", file=sys.stderr)
        return 130
    return 0


def _stopped(sentence: str) -> int:
    print(f"Set-up stopped: {sentence}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
