"""The engine on other processors, old ones and one that is less than its name: an emulator stands in for them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from environment import Environment
from old_cpus import EXPECTED, EXPECTED_OF_THIS_PC, emulator, look
from package import FOLDER

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]


@pytest.fixture
def emulated() -> str:
    if sys.platform != "linux" or (program := emulator()) is None:
        pytest.skip("not checked: qemu-user is not installed")
    return program


@pytest.mark.parametrize("cpu", EXPECTED)
def test_a_cpu_gets_its_own_kernels_of_the_packaged_program_and_answers(project_root: Path, emulated, cpu: str) -> None:
    env = Environment(project_root, (), f"{FOLDER}/environment", any_cpu=True)
    if not env.python.exists():
        pytest.skip("not checked: llama.cpp for every CPU is not here, `make package` compiles it")
    found = look(cpu, emulated, env)
    assert (found.exit_code, found.kernels) == (0, EXPECTED[cpu]), found.errors
    assert found.is_answered, found.answer
    assert found.instructions != ""
    assert found.failures == ()


@pytest.mark.parametrize("cpu", EXPECTED_OF_THIS_PC)
def test_what_was_compiled_for_this_pc_steps_down_on_an_older_one(project_root: Path, emulated, cpu: str) -> None:
    found = look(cpu, emulated, Environment(project_root, ()))
    assert (found.exit_code, found.kernels) == (0, EXPECTED_OF_THIS_PC[cpu]), found.errors
    assert found.is_answered, found.answer
    assert [str(failure) for failure in found.failures] == ["native: SIGILL"]
