"""llama.cpp's library itself: made ready once a process, with the best kernels that this CPU runs and that are right.

Kernels are modules, one for each kind of CPU: kernels.py. A library from elsewhere may have one kind built in.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llama_cpp import llama_cpp as llama

from appliance.base.errors import ModelFileError, NoKernels, WrongNumbers
from appliance.engine import llama_trial
from appliance.engine.kernels import BUILT_IN, in_order, modules


def make_ready(n_passed_over: int = 0, n_threads: int = 1, announce: Callable[[str], None] = lambda _name: None) -> str:
    """Before the first model: load the best kernels left and let them compute. Returns their name.

    Args:
        n_passed_over: levels of kernels (kernels.LEVELS) that failed here before.
        n_threads: for the trial.
        announce: told of each module before it is touched, because it may end this process.
    Raises:
        WrongNumbers: they compute, but not what they should; another process has to try the next ones.
        NoKernels: none is left.
        ModelFileError: llama.cpp is not whole.
    """
    name = _load(n_passed_over, announce)
    llama.llama_backend_init()  # last: without kernels it looks for some in the folder we were started from
    error = llama_trial.largest_error(n_threads)
    if error > llama_trial.TOLERANCE:
        raise WrongNumbers(name, error)
    return name


def _load(n_passed_over: int, announce: Callable[[str], None]) -> str:
    if _n_backends():
        if n_passed_over:
            raise NoKernels("this llama.cpp has one kind of kernels only, and they do not run here")
        announce(BUILT_IN)
        return BUILT_IN
    files = modules()
    if not files:
        raise ModelFileError(
            _library_folder(),
            "llama.cpp finds no part of itself there that this CPU can run",
            llama_trial.UNPACK_AGAIN,
        )
    for name in in_order(list(files), n_passed_over):
        announce(name)
        if load_module(str(files[name])):
            return name
    raise NoKernels(f"none of {', '.join(in_order(list(files)))} is left for this CPU")


def load_module(path: str) -> bool:
    """Load one module of kernels; "" stands for those that are built in. False where the CPU lacks an instruction that
    the module asks for.
    """
    if not path:
        return bool(_n_backends())
    load = _function("ggml_backend_load")
    load.argtypes, load.restype = [ctypes.c_char_p], ctypes.c_void_p
    return bool(load(path.encode()))


def instructions() -> str:
    """What llama.cpp says that its kernels use, as `SSE3 SSSE3 AVX AVX2 ...`."""
    told = llama.llama_print_system_info().decode("utf-8", errors="ignore")
    words = (part.split("=") for part in told.replace(":", "|").split("|"))
    return " ".join(pair[0].strip() for pair in words if len(pair) == 2 and pair[1].strip() == "1")


def _n_backends() -> int:
    return int(_function("ggml_backend_reg_count")())


def _library_folder() -> Path:
    return Path(llama.__file__).parent / "lib"


def _function(name: str) -> Any:
    """A function of ggml, through libllama's own handle: the wheel holds ggml twice, each with a list of its own."""
    if sys.platform == "win32":  # there a handle knows its own functions only, and ggml.dll is loaded once
        return getattr(ctypes.CDLL(str(_library_folder() / "ggml.dll")), name)
    return getattr(llama._lib, name)  # the binding has no other name for it
