"""llama.cpp's library itself: made ready once a process, with the part that fits this CPU.

The packaged library is compiled once for all CPUs: its kernels are files of their own, one of which is chosen at run
time. The one that `make run` compiles for this CPU has them built in.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

from llama_cpp import llama_cpp as llama

from appliance.errors import ModelFileError

_FILES = ("libggml-cpu-*.so", "ggml-cpu-*.dll")


def make_ready() -> None:
    """Before the first model. Raises ModelFileError where no file with kernels for this CPU is left."""
    if not _n_backends():
        load = _function("ggml_backend_load_all_from_path")
        load.argtypes, load.restype = [ctypes.c_char_p], None
        for folder in kernel_folders():
            load(str(folder).encode())
    if not _n_backends():
        raise ModelFileError(
            _library_folder(),
            "llama.cpp finds no part of itself there that this CPU can run",
            "Unpack the program again, in full, and let a virus scanner leave its folder alone.",
        )
    llama.llama_backend_init()  # last: without kernels it looks for some in the folder we were started from


def kernel_folders() -> list[Path]:
    """Folders with kernels as files of their own: beside the library, or where the wheel lays them."""
    places = (_library_folder(), Path(llama.__file__).parent.parent / "bin")
    return [place for place in places if any(any(place.glob(pattern)) for pattern in _FILES)]


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
