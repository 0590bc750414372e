"""Debian packages the set-up needs or is better with: asked of apt where that is allowed, else named in a sentence."""

from __future__ import annotations

import ctypes.util
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from console import SetupError, duration, run_logged, say

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


def missing_for_venv() -> list[str]:
    """Debian splits ensurepip off into a package of its own."""
    found = importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")
    return [] if found else [f"python{sys.version_info.major}.{sys.version_info.minor}-venv"]


def missing_for_compiling() -> list[str]:
    """A C and a C++ compiler; the owner's own choice in CC and CXX counts."""
    wanted = {"gcc": os.environ.get("CC") or "cc", "g++": os.environ.get("CXX") or "c++"}
    # The variables may carry arguments ("ccache g++"): the first word is the program.
    return [package for package, command in wanted.items() if shutil.which(command.split()[0]) is None]


def missing_for_browser() -> list[str]:
    """A browser for the tests, and a font with Chinese characters, without which screenshots show boxes."""
    packages = [] if any(shutil.which(name) for name in CHROMIUM_NAMES) else ["chromium"]
    if not _has_chinese_font():
        packages += ["fontconfig", "fonts-wqy-microhei"]
    return packages


def missing_for_freezing() -> list[str]:
    """PyInstaller reads libraries with objdump, and takes Python itself as a library, which Debian splits off."""
    packages = [] if shutil.which("objdump") else ["binutils"]
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if sys.base_prefix == "/usr" and ctypes.util.find_library(python) is None:
        packages.append(f"lib{python}")
    return packages


def missing_for_self_test() -> list[str]:
    """What tells which files the frozen program opens."""
    return [] if shutil.which("strace") else ["strace"]


def missing_for_packaged_tests() -> list[str]:
    """Networks without a way out, which only root may make, and an emulator of old processors."""
    packages = ["iproute2"] if os.geteuid() == 0 and shutil.which("ip") is None else []
    emulators = ("qemu-x86_64", "qemu-x86_64-static")
    return packages if any(map(shutil.which, emulators)) else [*packages, "qemu-user"]


def _has_chinese_font() -> bool:
    fc_list = shutil.which("fc-list")
    if fc_list is None:
        return False
    listed = subprocess.run([fc_list, ":lang=zh-cn", "file"], capture_output=True, text=True, check=False)
    return bool(listed.stdout.strip())


def provide(missing: Callable[[], list[str]], why: str, log: Path) -> None:
    """Install what `missing` finds by apt-get, as root or through passwordless sudo.

    Raises SetupError where neither works, or where something is still missing afterwards.
    """
    packages = missing()
    if not packages:
        return
    names = " ".join(packages)
    prefix = _root_prefix()
    if prefix is None or shutil.which("apt-get") is None:
        raise SetupError(f"{names} missing, needed {why}. Please run: sudo apt-get install {names}")
    say(f"Installing Debian packages, needed {why}: apt-get install {names}")
    apt_get = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "-o", "DPkg::Lock::Timeout=120"]
    command = [*apt_get, "install", "--no-install-recommends", *packages]
    # A fresh machine has no package lists yet and an old one has lists that name withdrawn files.
    took_s = run_logged(
        [*apt_get, "update"], log=log.with_name("apt-update.log"), label="reading Debian's package lists"
    )
    took_s += run_logged(command, log=log, label=f"installing {names}")
    say(f"  done in {duration(took_s)}")
    importlib.invalidate_caches()
    if missing():
        raise SetupError(f"{names} installed, but still not found, needed {why}. Please put /usr/bin first on PATH.")


def offer(missing: Callable[[], list[str]], what: str, log: Path) -> None:
    """`provide` for what a check is made with: where it cannot be had, a line says that `what` is not checked."""
    try:
        provide(missing, f"to check {what}", log)
    except SetupError as error:
        say(f"NOT CHECKED: {what} ({error})")


def _root_prefix() -> list[str] | None:
    """What makes a command run as root: nothing for root, sudo where it asks no password, None where neither."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True, check=False).returncode == 0:
        return [sudo, "-n"]
    return None
