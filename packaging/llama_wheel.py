"""The llama-cpp-python wheel: which ready one may be used, and how a lean one is compiled.

A wheel compiled here has kernels with all of this CPU's instructions and, as modules of their own, some with fewer
(own_kernels.cmake), so it is kept in a folder named after version, flags and CPU. A wheel lying directly in the wheels
folder was put there by the owner and is used if its version and platform fit and its kernels pass the trial.
The packaged program gets another one, for any CPU, which is never taken from there.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from console import SetupError, duration, run_logged, say
from environment import pip_command

# LLAVA is the multimodal part; the rest of what we never use goes in lean_llama.cmake. Kernels are modules.
DEFINES = ("LLAVA_BUILD=OFF", "GGML_NATIVE=OFF", "GGML_BACKEND_DL=ON")
ANY_CPU_DEFINES = (*DEFINES, "GGML_CPU_ALL_VARIANTS=ON")
CMAKE_FILES = ("lean_llama.cmake", "own_kernels.cmake", "amx_tiles.h")
"""Ours that CMake and the compiler read."""
KERNEL_LIST = "vendor/llama.cpp/ggml/src/CMakeLists.txt"
"""Where llama.cpp chooses between one module of kernels and its list for every CPU; ours comes before both."""
CHOICE = "if (GGML_CPU_ALL_VARIANTS)\n    if (NOT GGML_BACKEND_DL)"
FLAG_VARIABLES = ("CMAKE_ARGS", "SKBUILD_CMAKE_DEFINE", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS")
# What a compiler may turn into instructions on its own. The other flags of /proc/cpuinfo come and go with kernels.
X86_INSTRUCTIONS = re.compile(
    r"(sse|ssse|avx|fma|f16c|bmi|amx|popcnt|aes|vaes|pclmul|vpclmul|sha|gfni|adx|movbe|abm|lzcnt|pni|xop|tbm|3dnow)"
)
NINJA_STEP = re.compile(r"^\s*\[(\d+)/(\d+)\]", re.MULTILINE)


def cpu_features(cpuinfo: str) -> tuple[str, ...]:
    """The instruction sets of the first CPU in the text of /proc/cpuinfo (`flags` on x86, `Features` on ARM)."""
    found = re.search(r"^(flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    if found is None:
        return ()
    names = found[2].split()
    return tuple(sorted(name for name in names if found[1] == "Features" or X86_INSTRUCTIONS.match(name)))


def build_key(
    version: str,
    sources: str,
    machine: str,
    features: Iterable[str],
    environ: Mapping[str, str],
    defines: Sequence[str] = DEFINES,
) -> str:
    """A folder name that differs whenever a wheel compiled for one case could be wrong for the other."""
    flags = {name: environ[name] for name in FLAG_VARIABLES if environ.get(name)}
    settings = "\n".join(line for line in sources.splitlines() if not line.lstrip().startswith("# "))
    facts = json.dumps([version, defines, settings, machine, list(features), flags], sort_keys=True)
    return f"{version}-{machine}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"


def this_build_key(version: str, packaging: Path, any_cpu: bool = False) -> str:
    """`build_key` for the machine and environment we run in. For any CPU, the C library counts instead of this CPU."""
    sources = "\n".join((packaging / name).read_text() for name in CMAKE_FILES)
    if any_cpu:
        return build_key(version, sources, platform.machine(), platform.libc_ver(), os.environ, ANY_CPU_DEFINES)
    cpuinfo = Path("/proc/cpuinfo")
    features = cpu_features(cpuinfo.read_text() if cpuinfo.exists() else "")
    return build_key(version, sources, platform.machine(), features, os.environ)


def dropped_wheel(folders: Iterable[Path], version: str, machine: str) -> Path | None:
    """The newest fitting wheel lying directly in one of `folders`, the first folder that has one."""
    for folder in folders:
        fitting = [
            path
            for path in folder.glob(f"llama_cpp_python-{version}-*.whl")
            if re.fullmatch(rf"(py3-none|cp311-cp311)-[a-z0-9_.]*linux[a-z0-9_.]*_{machine}", _tags(path))
        ]
        if fitting:
            return max(fitting, key=_modified_s)
    return None


def _tags(wheel: Path) -> str:
    """`py3-none-linux_x86_64` of `name-version-py3-none-linux_x86_64.whl`."""
    return "-".join(wheel.stem.split("-")[-3:])


def _modified_s(path: Path) -> float:
    return path.stat().st_mtime


def kept_wheel(folders: Iterable[Path], key: str) -> Path | None:
    """The wheel an earlier set-up compiled under the same key."""
    return next((path for folder in folders for path in sorted((folder / key).glob("*.whl"))), None)


def identity(wheel: Path) -> str:
    """Changes when another file takes the wheel's place; reads no content, because every start asks."""
    facts = wheel.stat()
    return f"{wheel.name} {facts.st_size} {facts.st_mtime_ns}"


def ninja_progress(log: str) -> str:
    """`41/83` from the last step that ninja has reported, or nothing yet."""
    steps = NINJA_STEP.findall(log)
    return "/".join(steps[-1]) if steps else ""


def compile_wheel(packaging: Path, keep_in: Path, logs: Path, any_cpu: bool = False) -> Path:
    """Compile llama-cpp-python without what we never use and keep the wheel in `keep_in`.

    CMake, ninja and the build back end come pinned into a throw-away environment, whatever the machine has. pip's own
    cache of wheels is not used: it knows nothing of compile flags.
    """
    cores = os.cpu_count() or 1
    what = "for every CPU, once: about 9 minutes" if any_cpu else "for this CPU, once: about 4 minutes"
    say(f"Compiling llama.cpp {what} on two free cores (this PC has {cores} cores).")
    with tempfile.TemporaryDirectory(prefix="office-chat-build-") as scratch_name:
        scratch = Path(scratch_name)
        tools = scratch / "tools"
        make_tools = [sys.executable, "-E", "-s", "-m", "venv", str(tools)]
        run_logged(make_tools, log=logs / "build-venv.log", label="making a place for the build tools")
        programs = tools / ("Scripts" if os.name == "nt" else "bin")
        in_tools = pip_command(programs / "python")
        hashed = ["--require-hashes", "--only-binary=:all:", "-r", str(packaging / "build.lock")]
        run_logged([*in_tools, "install", *hashed], log=logs / "build-tools.log", label="fetching cmake and ninja")
        defines = [*(ANY_CPU_DEFINES if any_cpu else DEFINES)]
        defines += [f"CMAKE_PROJECT_llama.cpp_INCLUDE={(packaging / 'lean_llama.cmake').as_posix()}"]
        if not any_cpu:
            defines += [f"OFFICE_CHAT_KERNELS={(packaging / 'own_kernels.cmake').as_posix()}"]
        owners = os.environ.get("SKBUILD_CMAKE_DEFINE")
        env = {
            **os.environ,
            "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "SKBUILD_CMAKE_DEFINE": ";".join([*defines, *([owners] if owners else [])]),
        }
        source = _source(in_tools, packaging, scratch, logs, env)
        wheel = ["wheel", "-v", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
        took_s = run_logged(
            [*in_tools, *wheel, str(source), "-w", str(scratch / "out")],
            log=logs / "llama-cpp-build.log",
            label="compiling llama.cpp",
            progress=ninja_progress,
            env=env,
        )
        built = next((scratch / "out").glob("llama_cpp_python-*.whl"))
        keep_in.mkdir(parents=True, exist_ok=True)
        unfinished = keep_in / f"{built.name}.part"
        shutil.copyfile(built, unfinished)
        say(f"  llama.cpp compiled in {duration(took_s)}, kept in {keep_in}")
        return unfinished.replace(keep_in / built.name)


def _source(in_tools: Sequence[str], packaging: Path, scratch: Path, logs: Path, env: Mapping[str, str]) -> Path:
    """The pinned source, unpacked below `scratch`, with our list of kernels asked for."""
    fetch = ["download", "--no-deps", "--no-build-isolation", "--no-cache-dir", "--no-binary=llama-cpp-python"]
    pinned = ["--require-hashes", "-r", str(packaging / "llama.lock"), "-d", str(scratch)]
    run_logged([*in_tools, *fetch, *pinned], log=logs / "llama-source.log", label="fetching llama.cpp", env=env)
    shutil.unpack_archive(next(scratch.glob("llama_cpp_python-*.tar.gz")), scratch)
    folder = next(path for path in scratch.glob("llama_cpp_python-*") if path.is_dir())
    kernel_list = folder / KERNEL_LIST
    text = kernel_list.read_text()
    if text.count(CHOICE) != 1:
        raise SetupError(f"{KERNEL_LIST} of this version chooses kernels in another way: see llama_wheel.py")
    ours = "if (OFFICE_CHAT_KERNELS)\n    include(${OFFICE_CHAT_KERNELS})\nelse"
    kernel_list.write_text(text.replace(CHOICE, ours + CHOICE))
    return folder


def try_kernels(python: Path, packaging: Path, *, each: bool = False) -> tuple[bool, str]:
    """Let the installed library compute: whether kernels are right here, and what was found of each.

    `each`: none may be wrong. Blocks for a second a module.
    """
    command = [str(python), "-E", "-s", str(packaging / "try_kernels.py"), *(["--each"] if each else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = "; ".join(done.stdout.splitlines()) or done.stderr.strip()[-300:]
    return done.returncode == 0, found
