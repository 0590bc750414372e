"""Running programs for the system tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.program import Program


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Start app.py with the echo engine (or another `backend`); it is ended with the test."""
    programs: list[Program] = []

    def start_one(
        *flags: str, data_dir: Path = tmp_path / "data", backend: str = "echo", **settings: object
    ) -> Program:
        programs.append(Program(data_dir, *flags, backend=backend, **settings))
        return programs[-1]

    yield start_one
    for program in programs:
        program.close()


@pytest.fixture(scope="module")
def echo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """One echo program for all tests of a module that leave it as they found it."""
    program = Program(tmp_path_factory.mktemp("echo"), backend="echo")
    try:
        yield program.wait_ready()
    finally:
        program.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """One program with the starter model for all tests of a module."""
    program = Program(tmp_path_factory.mktemp("model"), backend="llama", yield_to_others=False)
    try:
        yield program.wait_ready()
    finally:
        program.close()
