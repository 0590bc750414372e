"""llama-server and llama-batched-bench, compiled from llama-cpp-python's own source archive: our llama.cpp, their loop.

Everything lies in `build/peers/`, in a folder named after version, flags and CPU; what is there is not made again, and
an interrupted build goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from bench.interleave import progress
from bench.program import ROOT
from bench.results import cpu_name
from bench.shape import source_archive

CACHE = ROOT / "build" / "peers"
TARGETS = ("llama-server", "llama-batched-bench")
# As our wheel is compiled: Release, for this CPU (GGML_NATIVE), OpenMP. What is left out has no part in answering.
FLAGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON",  # so that the finished folder can be moved
)
_STEP = re.compile(r"^\[(\d+)/(\d+)\]", re.MULTILINE)
_SHOW_EVERY_S = 15.0
_POLL_S = 0.5
_LAST_LINES = 20


@dataclass(frozen=True)
class Peers:
    """Where the built programs are."""

    folder: Path

    @property
    def server(self) -> Path:
        """llama-server."""
        return self.libraries / "llama-server"

    @property
    def batched_bench(self) -> Path:
        """llama-batched-bench."""
        return self.libraries / "llama-batched-bench"

    @property
    def libraries(self) -> Path:
        """The folder with libllama and libmtmd."""
        return self.folder / "bin"

    @property
    def example_server(self) -> Path:
        """llama-cpp-python's own `examples/server/server.py`."""
        return self.folder / "example" / "server.py"


def build_key(version: str, flags: Sequence[str], cpu: str) -> str:
    """A folder name that differs whenever what lies there could be wrong."""
    facts = json.dumps([version, list(flags), cpu])
    return f"{version}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"


def ninja_progress(log: str) -> str:
    """`41/183` of the last step ninja reported, or nothing yet."""
    steps = _STEP.findall(log)
    return "/".join(steps[-1]) if steps else ""


def peers(archives: Path, cache: Path = CACHE) -> Peers:
    """The programs, built first if need be: about 8 minutes and 600 MB of disk on two cores.

    Args:
        archives: folder for the source archive, which pip fetches.
    """
    version = metadata.version("llama-cpp-python")
    flags = (*FLAGS, *shlex.split(os.environ.get("CMAKE_ARGS", "")))  # what the owner's wheel was compiled with
    built = Peers(cache / build_key(version, flags, cpu_name()))
    if built.server.is_file() and built.batched_bench.is_file():
        return built
    work = built.folder / "work"
    source = _unpacked(source_archive(archives), work / "source")
    tools = _build_tools(cache / "tools")
    env = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    cmake, log = str(tools / "cmake"), built.folder / "build.log"
    made = work / "cmake"
    llama = source / "vendor" / "llama.cpp"
    progress(f"compiling {' and '.join(TARGETS)}, once: some minutes")
    _run([cmake, "-S", str(llama), "-B", str(made), "-G", "Ninja", *flags], log, env)
    jobs = str(os.cpu_count() or 1)
    _run([cmake, "--build", str(made), "--parallel", jobs, "--target", *TARGETS], log, env)
    example = source / "examples" / "server" / "server.py"
    built.example_server.parent.mkdir(exist_ok=True)
    shutil.copyfile(example, built.example_server)
    (made / "bin").rename(built.libraries)
    shutil.rmtree(work)
    return built


def _unpacked(archive: Path, folder: Path) -> Path:
    """The archive's one top folder; a finished unpacking is known by its name."""
    if not folder.is_dir():
        unfinished = folder.with_name("unpacking")
        shutil.rmtree(unfinished, ignore_errors=True)
        with tarfile.open(archive) as members:
            members.extractall(unfinished, filter="data")
        (top,) = unfinished.iterdir()
        top.rename(folder)
        unfinished.rmdir()
    return folder


def _build_tools(folder: Path) -> Path:
    """cmake and ninja in the versions our wheel is built with; returns the folder they are in."""
    binaries = folder / ("Scripts" if sys.platform == "win32" else "bin")
    if not (binaries / "ninja").exists():
        progress("fetching cmake and ninja")
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(binaries / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        lock = str(ROOT / "packaging" / "build.lock")
        subprocess.run([*pip, "--require-hashes", "--only-binary=:all:", "-r", lock], check=True)
    return binaries


def _run(command: Sequence[str], log: Path, env: dict[str, str]) -> None:
    """Its output goes into the log; how far it is, to the terminal. Raises RuntimeError with the log's end."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env, start_new_session=True)
    shown_s = time.monotonic()
    try:
        while process.poll() is None:
            time.sleep(_POLL_S)
            if time.monotonic() - shown_s >= _SHOW_EVERY_S:
                shown_s = time.monotonic()
                progress(f"compiling {ninja_progress(log.read_text(errors='replace'))}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)  # the compilers too
            process.wait()
    if process.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_LAST_LINES:])
        raise RuntimeError(f"{Path(command[0]).name} failed ({process.returncode}); the end of {log.name}:\n{tail}")
