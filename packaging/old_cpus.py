"""Lets an emulator stand in for old processors: which kernels does llama.cpp choose there, and do they answer?

`python packaging/old_cpus.py` after `make package`, with qemu-user installed; some minutes of emulation. The engine is
inside the emulator in one process (engine_alone.py): one that it spawned would run on the real processor.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from environment import Environment
from package import FOLDER, starter_model

EXPECTED = {"Nehalem": "sse42", "SandyBridge": "sandybridge", "Haswell": "haswell"}
"""Processor to kernels. A Nehalem of 2008 has no AVX, a SandyBridge of 2011 no AVX2."""
_LIMIT_S = 800


@dataclass(frozen=True)
class Found:
    """What the engine said on that processor; empty where it did not get so far."""

    exit_code: int
    instructions: str
    kernels: str
    answer: str
    """In quotes."""
    errors: str

    @property
    def is_answered(self) -> bool:
        """Whether something came, and nothing failed on the way."""
        return len(self.answer) > 2 and "failed" not in self.answer


def emulator() -> str | None:
    """The program that runs x86-64 programs on a processor of one's choice; None where there is none."""
    return shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")


def look(cpu: str, program: str, env: Environment) -> Found:
    """Ask the engine one question on that processor."""
    command = [program, "-cpu", cpu, str(env.python), str(env.packaging / "engine_alone.py"), str(starter_model(env))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    said = dict(re.findall(r"^(\w+): (.*)$", done.stdout, re.MULTILINE))
    errors = (said.get("failed", "") + done.stderr)[-2000:]
    return Found(done.returncode, said.get("instructions", ""), said.get("kernels", ""), said.get("answer", ""), errors)


def main() -> int:
    """Exit code 0 when every processor got its kernels and an answer."""
    program = emulator()
    if program is None:
        print("There is no qemu-x86_64: install qemu-user.", file=sys.stderr)
        return 1
    root = Path(__file__).resolve().parent.parent
    env = Environment(root, (), f"{FOLDER}/environment", any_cpu=True)
    all_right = True
    for cpu, expected in EXPECTED.items():
        began_s = time.monotonic()
        found = look(cpu, program, env)
        is_right = (found.exit_code, found.kernels) == (0, expected) and found.is_answered
        all_right = all_right and is_right
        verdict = "right" if is_right else f"WRONG, expected {expected}; exit code {found.exit_code}: {found.errors}"
        took_s = time.monotonic() - began_s
        print(f"{cpu}: {found.kernels or 'none'} ({found.instructions}), answered {found.answer}, {took_s:.0f} s")
        print(f"  {verdict}", flush=True)
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main())
