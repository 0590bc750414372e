"""The program around an engine whose kernels fail, or whose model kills it: it says so, goes on, and can be helped."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx
import pytest

from appliance.engine.kernels import label_of
from appliance.models.catalogue import starter_model
from tests.model.faulty_llama import Fault, able_here, faulty_llama
from tests.system.program import Program

pytestmark = pytest.mark.model


def with_faults(tmp_path: Path, **faults: Fault) -> tuple[dict[str, str], list[str]]:
    """The environment of a program with such a llama.cpp, and its kernels."""
    names = faulty_llama(tmp_path / "site", **faults)
    return {"PYTHONPATH": str(tmp_path / "site")}, names


def text_of(program: Program) -> str:
    program.terminate()
    text = program.output()
    assert "Traceback" not in text
    return text


def wait_for_log(program: Program, words: str) -> None:
    until = time.monotonic() + 40
    while program.status("/health") != 200 or words not in program.log():
        assert program.process.poll() is None, program.output()
        assert time.monotonic() < until, "not in the log"
        time.sleep(0.1)


def test_simpler_kernels_are_said_once_remembered_and_tried_again_when_asked(start, tmp_path):
    variables, names = with_faults(tmp_path, native=Fault.AT_FIRST_EVALUATION)
    program = start(env=variables, backend="llama").wait_ready()
    assert f"native: SIGSEGV): simpler ones compute, {label_of(names[1])}" in text_of(program)
    kept = json.loads((program.data_dir / "tuned" / "kernels.json").read_text())
    assert kept["failures"] == [{"kernels": "native", "how": "SIGSEGV"}]
    later = start(env=variables, backend="llama").wait_ready()
    assert "kernels failed (native" not in later.log().partition("ready after")[2], "it is known, so it is not tried"
    assert f"computes with {label_of(names[1])}" in later.log()
    text_of(later)
    # With the fault gone the flag brings the best ones back.
    mended = start("--retry-kernels", backend="llama").wait_ready()
    assert "simpler ones compute" not in text_of(mended)
    assert "computes with native" in mended.log()


def test_without_any_kernels_the_program_goes_on_and_says_what_is_wrong(start, tmp_path):
    variables, names = with_faults(tmp_path, **dict.fromkeys(["native", *able_here()], Fault.WRONG_NUMBERS))
    program = start(env=variables, backend="llama")
    wait_for_log(program, "no model answers")
    ready = httpx.get(f"{program.url}/ready", trust_env=False)
    assert ready.status_code == 503
    assert program.status("/health") == 200
    assert program.status("/") == 200
    text = text_of(program)
    assert f"{label_of(names[-1])}: wrong numbers" in text
    assert "delete the folder wheels" in text
    assert f"{program.url}/here?token=" in text


def test_a_model_that_kills_the_engine_is_named_and_the_last_good_one_returns(start, tmp_path):
    good = start(backend="llama").wait_ready()
    text_of(good)
    variables, _ = with_faults(tmp_path, **dict.fromkeys(["native", *able_here()], Fault.ON_ANY_OTHER_MODEL))
    alone = start(env=variables, backend="llama")
    wait_for_log(alone, "no model answers")
    text = text_of(alone)
    assert f"{starter_model()}: llama.cpp dies on it with every kind of kernels" in text
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(starter_model().read_bytes()[: 40 * 2**20])
    program = start("--model", str(broken), backend="llama").wait_ready()
    text = text_of(program)
    assert "broken.gguf: the file is cut off" in text
    assert "which answered before, has taken its place" in text
