"""Lets an emulator stand in for other processors: which kernels does the engine come to there, and do they answer?

`python packaging/old_cpus.py` after `make package`, with qemu-user installed; some minutes of emulation. The engine is
inside the emulator in one process (engine_alone.py): one that it spawned would run on the real processor. What the web
process does about kernels that end it (appliance/engine/step_down.py) is done here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from environment import Environment
from package import FOLDER, starter_model

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from appliance.engine.kernels import Failure, name_of_end
from appliance.engine.step_down import StepDown
from appliance.engine.wire import Kernels

EXPECTED = {
    "Nehalem": "sse42",
    "SandyBridge": "sandybridge",
    "Haswell": "haswell",
    "Icelake-Server": "haswell",
}
"""Processor to kernels of the packaged program. A Nehalem of 2008 has no AVX, a SandyBridge of 2011 no AVX2. The last
is newer than the emulator can be, as a virtual machine can be less than its processor's name."""
EXPECTED_OF_THIS_PC = {"Nehalem": "sse42", "Haswell": "haswell"}
"""The same for the llama.cpp that was compiled for this PC: a copy of it on an older one."""
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
    failures: tuple[Failure, ...] = ()
    """Kernels that were passed over on the way."""

    @property
    def is_answered(self) -> bool:
        """Whether something came, and nothing failed on the way."""
        return len(self.answer) > 2 and "failed" not in self.answer


def emulator() -> str | None:
    """The program that runs x86-64 programs on a processor of one's choice; None where there is none."""
    return shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")


def look(cpu: str, program: str, env: Environment) -> Found:
    """Ask the engine one question on that processor, with simpler kernels after each that ends it."""
    step_down = StepDown()
    while True:
        arguments = [str(env.packaging / "engine_alone.py"), str(starter_model(env)), str(step_down.n_passed_over)]
        command = [program, "-cpu", cpu, str(env.python), *arguments]
        # What numpy's library is told of the real processor is not true of this one.
        variables = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False, env=variables)
        said = dict(re.findall(r"^(\w+): (.*)$", done.stdout, re.MULTILINE))
        step_down.began()
        if "tried" in said:
            step_down.trying(Kernels(said["tried"], are_right="right" in said))
        if not step_down.after_loading_ended(name_of_end(done.returncode)):
            break
    errors = (said.get("failed", "") + done.stderr)[-2000:]
    instructions, kernels, answer = (said.get(name, "") for name in ("instructions", "kernels", "answer"))
    return Found(done.returncode, instructions, kernels, answer, errors, step_down.failures)


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
