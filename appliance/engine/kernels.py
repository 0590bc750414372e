"""Kernels: llama.cpp's modules for one kind of CPU each, in what order they are tried, and which have failed here.

A CPU's word for its instructions is not proof: a compiler's mistake, a virtual machine or a module copied from another
PC show only when something is computed. Every engine computes a known model first (llama_trial.py); kernels that end
its process or come to other numbers are passed over from then on, with everything of the same instructions.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BUILT_IN: Final = "built-in"
"""Kernels that are part of the library, as in a wheel that is not ours: there is nothing to step down to."""

LEVELS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    # What the newest instructions are, and the modules that use them, best first. A CPU runs the first it can.
    ("native", ("native",)),
    ("AMX", ("sapphirerapids",)),
    ("AVX-512", ("noamx", "zen4", "cooperlake", "icelake", "cascadelake", "cannonlake", "skylakex")),
    ("AVX2", ("alderlake", "haswell")),
    ("AVX", ("piledriver", "ivybridge", "sandybridge")),
    ("SSE4.2", ("sse42",)),
    ("x86-64", ("x64",)),
    ("SME", ("armv9.2_2", "armv9.2_1")),
    ("SVE", ("armv8.6_2", "armv8.6_1", "armv8.2_3")),
    ("dot product", ("armv8.2_2", "armv8.2_1")),
    ("ARMv8", ("armv8.0_1",)),
)
CRASHES: Final = frozenset({"SIGSEGV", "SIGILL", "SIGBUS", "SIGFPE", "SIGABRT"})
"""Ends of a process that kernels can be the reason of. Killed from outside, or by an error of ours, is none."""
WRONG: Final = "wrong numbers"

_WINDOWS_CODES: Final = {
    0xC0000005: "SIGSEGV",  # access violation
    0xC000001D: "SIGILL",
    0xC0000006: "SIGBUS",  # a page that could not be read
    0xC0000094: "SIGFPE",
    0x40000015: "SIGABRT",
    0xC0000409: "SIGABRT",
}


def level_of(kernels: str) -> int:
    """The place of a module in LEVELS; 0, before everything else, for one that is not in it."""
    return next((place for place, (_, names) in enumerate(LEVELS) if kernels in names), 0)


def in_order(names: list[str], n_passed_over: int = 0) -> list[str]:
    """The modules to try, best first, without those of the first `n_passed_over` levels."""
    known = [name for _, modules in LEVELS for name in modules]
    left = [name for name in names if level_of(name) >= n_passed_over]
    return sorted(left, key=lambda name: (level_of(name), known.index(name) if name in known else -1))


def label_of(kernels: str) -> str:
    """What the owner reads: `native`, or `AVX-512 (zen4)` with the module's own name; "" for none."""
    if kernels in ("", BUILT_IN):
        return kernels
    label, names = LEVELS[level_of(kernels)]
    return label if names == (kernels,) else f"{label} ({kernels})"


def name_of_end(exit_code: int | None) -> str:
    """How a process ended: `SIGSEGV`, `exit code 3`. Windows' codes for the same are given the same names."""
    if exit_code is not None and exit_code < 0:
        return next((each.name for each in signal.Signals if each == -exit_code), f"signal {-exit_code}")
    return _WINDOWS_CODES.get((exit_code or 0) & 0xFFFFFFFF, f"exit code {exit_code}")


def modules() -> dict[str, Path]:
    """The installed llama.cpp's modules by name; none where its kernels are built in. Does not load them."""
    files = [path for path in _files() if path.suffix in (".so", ".dll") and "ggml-cpu-" in path.name]
    return {path.stem.partition("ggml-cpu-")[2]: path for path in files}


@functools.cache
def build_identity() -> str:
    """Changes with the files of llama.cpp that are installed. Reads no content and does not load them."""
    files = _files()
    if not files:
        return ""
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Failure:
    """Kernels that failed, and how: `SIGSEGV`, or `wrong numbers`."""

    kernels: str
    how: str

    def __str__(self) -> str:
        return f"{label_of(self.kernels)}: {self.how}"


def _files() -> list[Path]:
    """llama.cpp's libraries, and the modules beside them or where the wheel lays them; none without llama.cpp."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        return []
    package = Path(spec.origin).parent
    return sorted([*package.glob("lib/*"), *package.parent.glob("bin/*ggml*")])


def n_passed_over(failures: tuple[Failure, ...]) -> int:
    """Levels that are not tried: every one down to the last that failed."""
    return max((level_of(failure.kernels) + 1 for failure in failures), default=0)
