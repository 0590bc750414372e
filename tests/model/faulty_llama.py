"""A copy of the installed llama.cpp in which modules of kernels have a fault: real libraries, faulty_kernels.c."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from enum import IntEnum
from pathlib import Path

from appliance.engine.kernels import in_order

SITE = Path(sysconfig.get_path("platlib"))


class Fault(IntEnum):
    """As in faulty_kernels.c."""

    ON_LOAD = 1
    AT_FIRST_EVALUATION = 2
    WRONG_NUMBERS = 3
    AT_64_ROWS = 4
    ON_ANY_OTHER_MODEL = 5
    WHEN_TOLD = 6
    """The next evaluation after the file named by FAULT_WHEN is there."""


def able_here() -> list[str]:
    """Modules with fewer instructions than `native`, best first, that this CPU runs."""
    names = [path.stem.partition("ggml-cpu-")[2] for path in (SITE / "bin").glob("libggml-cpu-*.so")]
    assert names, "this llama.cpp has no kernels as modules: make run compiles one that has"
    flags = Path("/proc/cpuinfo").read_text()
    return [
        name for name in in_order(names) if name not in ("native", "noamx") and (name != "haswell" or "avx2" in flags)
    ]


def faulty_llama(site: Path, **faults: Fault) -> list[str]:
    """Make it in `site`, to be put first where Python looks for packages; returns the modules in it, best first."""
    shutil.copytree(SITE / "llama_cpp", site / "llama_cpp")
    (site / "bin").mkdir()
    names = ["native", *able_here()]
    for name in names:
        file = f"libggml-cpu-{name}.so"
        if name not in faults:
            (site / "bin" / file).symlink_to(SITE / "bin" / file)
            continue
        real = SITE / "bin" / f"libggml-cpu-{names[-1]}.so"  # which one does not matter: it only has to run here
        source = str(Path(__file__).with_name("faulty_kernels.c"))
        defines = [f'-DREAL="{real}"', f"-DFAULT={faults[name].value}"]
        command = ["gcc", "-shared", "-fPIC", "-O1", *defines, source, "-o", str(site / "bin" / file), "-ldl"]
        subprocess.run(command, check=True)
    return names
