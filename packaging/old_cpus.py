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
from pathlib import Path

from environment import Environment
from package import FOLDER, starter_model

EXPECTED = {"Nehalem": "sse42", "SandyBridge": "sandybridge", "Haswell": "haswell"}
"""Processor to kernels. A Nehalem of 2008 has no AVX, a SandyBridge of 2011 no AVX2."""
_LIMIT_S = 1800


def look(cpu: str, emulator: str, env: Environment) -> tuple[str, str]:
    """Kernels and answer on that processor; both empty where it did not get so far."""
    command = [emulator, "-cpu", cpu, str(env.python), str(env.packaging / "engine_alone.py"), str(starter_model(env))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    found = dict(re.findall(r"^(\w+): (.*)$", done.stdout, re.MULTILINE))
    if done.returncode:
        print(f"{cpu}: ended with {done.returncode}: {done.stderr[-500:]}", file=sys.stderr)
    return found.get("kernels", ""), found.get("answer", "")


def main() -> int:
    """Exit code 0 when every processor got its kernels and an answer."""
    emulator = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if emulator is None:
        print("There is no qemu-x86_64: install qemu-user.", file=sys.stderr)
        return 1
    root = Path(__file__).resolve().parent.parent
    env = Environment(root, (), f"{FOLDER}/environment", any_cpu=True)
    all_right = True
    for cpu, expected in EXPECTED.items():
        began_s = time.monotonic()
        kernels, answer = look(cpu, emulator, env)
        is_right = kernels == expected and len(answer) > 2
        all_right = all_right and is_right
        verdict = "right" if is_right else f"WRONG, expected {expected}"
        print(
            f"{cpu}: {kernels or 'none'} ({verdict}), answered {answer}, {time.monotonic() - began_s:.0f} s", flush=True
        )
    return 0 if all_right else 1


if __name__ == "__main__":
    sys.exit(main())
