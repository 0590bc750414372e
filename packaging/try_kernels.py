"""Lets every module of kernels in the installed llama.cpp compute a known model, each in a process of its own.

`.venv/bin/python packaging/try_kernels.py` prints a line for each: right, not for this CPU, by how much it is wrong, or
what it died of. The exit code is 0 when one is right; with --each only when none is wrong.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from appliance.engine.kernels import BUILT_IN, in_order, label_of, modules, name_of_end

TRY = """
import sys
sys.path.insert(0, sys.argv[1])
from llama_cpp import llama_cpp as llama
silence = llama.llama_log_callback(lambda level, text, data: None)
llama.llama_log_set(silence, None)
from appliance.engine import llama_library, llama_trial
if not llama_library.load_module(sys.argv[2]):
    print("not for this CPU")
else:
    error = llama_trial.largest_error(2)
    print("right" if error <= llama_trial.TOLERANCE else f"wrong numbers, off by {error:.2g}")
"""
NOT_HERE = "not for this CPU"
_TIMEOUT_S = 60.0


def outcome(module: Path | None) -> str:
    """`right`, or why not."""
    root = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-I", "-c", TRY, str(root), str(module or "")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"not done after {_TIMEOUT_S:.0f} s"
    if done.returncode == 0:
        return done.stdout.strip()
    last_line = (done.stderr.strip().splitlines() or [""])[-1]
    return name_of_end(done.returncode) if done.returncode < 0 else last_line[-300:]


def main(arguments: list[str]) -> int:
    """See the module."""
    files, outcomes = modules(), []
    for name in in_order(list(files)) or [BUILT_IN]:
        outcomes.append(outcome(files.get(name)))
        print(f"{label_of(name)}: {outcomes[-1]}", flush=True)
    is_whole = all(each in ("right", NOT_HERE) for each in outcomes)
    return 0 if "right" in outcomes and (is_whole or "--each" not in arguments) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
