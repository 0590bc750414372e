"""llama.cpp's AMX kernels as we compile them for the packaged program: right where there is AMX, and under an emulator
of its instructions where there is none (amx_emulator.c). As the compiler leaves them they die: packaging/amx_tiles.h.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.engine.llama_trial import TOLERANCE
from environment import Environment
from package import FOLDER

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

EVALUATE = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from llama_cpp import llama_cpp as llama
told = []
callback = llama.llama_log_callback(lambda level, text, data: told.append(text))
llama.llama_log_set(callback, None)
from appliance.engine import llama_library, llama_trial
module = ctypes.CDLL(sys.argv[2])
module.ggml_backend_init.restype = ctypes.c_void_p
register = llama_library._function("ggml_backend_register")  # as it is: llama.cpp would ask the processor first
register.argtypes = [ctypes.c_void_p]
register(module.ggml_backend_init())
error = llama_trial.largest_error(int(sys.argv[3]))
print("types:", *sorted({text.split()[-1].decode() for text in told if b"amx repack" in text}))
print("error:", error)
"""
OF_AMX = {"q4_0", "q4_1", "q8_0", "q4_K", "q6_K"}
"""What of the trial's types AMX computes."""


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables under which a process has AMX; none where the processor has it."""
    flags = Path("/proc/cpuinfo").read_text() if sys.platform == "linux" and platform.machine() == "x86_64" else ""
    if "amx_int8" in flags:
        return {}
    if not re.search(r"avx512_vnni.*", flags) or "avx512_bf16" not in flags:
        pytest.skip("not checked: the rest of these kernels needs a processor with AVX-512 VNNI and BF16")
    library = tmp_path_factory.mktemp("amx") / "amx_emulator.so"
    source = str(Path(__file__).with_name("amx_emulator.c"))
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize("n_threads", [1, 2])
def test_the_amx_kernels_compute_what_all_others_do(project_root: Path, emulated: dict[str, str], n_threads: int):
    env = Environment(project_root, (), f"{FOLDER}/environment", any_cpu=True)
    if not env.python.exists():
        pytest.skip("not checked: llama.cpp for every CPU is not here, `make package` compiles it")
    module = env.site_packages / "bin" / "libggml-cpu-sapphirerapids.so"
    done = subprocess.run(
        [str(env.python), "-c", EVALUATE, str(project_root), str(module), str(n_threads)],
        env={**os.environ, **emulated, "LD_LIBRARY_PATH": str(env.site_packages / "llama_cpp" / "lib")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = dict(re.findall(r"^(\w+): (.*)$", done.stdout, re.MULTILINE))
    assert set(said["types"].split()) == OF_AMX
    assert float(said["error"]) < TOLERANCE


def test_all_of_the_tile_configuration_is_written_before_it_is_loaded(tmp_path: Path, project_root: Path):
    """GCC 12 leaves these two stores out where it uses intrinsics of its own."""
    if platform.machine() != "x86_64":
        pytest.skip("not checked: AMX is for x86-64")
    source = tmp_path / "tiles.cpp"
    source.write_text(
        "#include <immintrin.h>\n"
        "struct tiles { unsigned char palette, reserved[15]; unsigned short colsb[16]; unsigned char rows[16]; };\n"
        "void load() { tiles t = {}; t.palette = 1; t.colsb[0] = 0x3B; t.rows[0] = 0x5A; _tile_loadconfig(&t); }\n"
    )
    header = str(project_root / "packaging" / "amx_tiles.h")
    command = ["g++", "-O3", "-mamx-tile", "-include", header, "-S", "-o", "-", str(source)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    before = text.partition("ldtilecfg")[0]
    assert re.search(r"\$59\b", before)
    assert re.search(r"\$90\b", before)
