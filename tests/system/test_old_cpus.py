"""The engine on processors of 2008, 2011 and 2013: an emulator stands in for them (packaging/old_cpus.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from environment import Environment
from old_cpus import EXPECTED, emulator, look
from package import FOLDER

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]


@pytest.mark.skipif(sys.platform != "linux", reason="qemu-user is for Linux")
@pytest.mark.parametrize("cpu", EXPECTED)
def test_an_old_cpu_gets_its_own_kernels_and_answers(project_root: Path, cpu: str) -> None:
    env = Environment(project_root, (), f"{FOLDER}/environment", any_cpu=True)
    if not env.python.exists():
        pytest.skip("not checked: llama.cpp for every CPU is not here, `make package` compiles it")
    program = emulator()
    if program is None:
        pytest.skip("not checked: qemu-user is not installed")
    found = look(cpu, program, env)
    assert (found.exit_code, found.kernels) == (0, EXPECTED[cpu]), found.errors
    assert found.is_answered, found.answer
    assert found.instructions != ""
