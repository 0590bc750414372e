"""Promises between files: README and Makefile, pyproject and lock files; and what must not be written into any."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from environment import pins

LEFT_OUT = {"wheels", "build", "dist", "data", "__pycache__"}  # and hidden folders, .ci apart
TEXT_SUFFIXES = {"", ".py", ".md", ".toml", ".lock", ".cmake", ".yaml", ".yml", ".js", ".css", ".html", ".txt", ".json"}

# Put together here, so that this file does not contain what it looks for.
REGISTRY_HOSTS = [f"{name}.{domain}" for name, domain in [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org")]]
REGISTRY_HOSTS += [f"{name}.debian.org" for name in ("deb", "security")]
MACHINE_PATHS = [f"/{folder}/" for folder in ("work", "root", "opt")]


def text_files(root: Path) -> list[Path]:
    return [
        path
        for path in root.rglob("*")
        if path.suffix in TEXT_SUFFIXES
        and path.name != ".git"  # a file in a linked worktree
        and not any(_left_out(part) for part in path.relative_to(root).parts[:-1])
        and path.is_file()
    ]


def _left_out(folder: str) -> bool:
    return folder in LEFT_OUT or (folder.startswith(".") and folder != ".ci")


@pytest.fixture(scope="module")
def pyproject(project_root: Path) -> dict[str, Any]:
    return tomllib.loads((project_root / "pyproject.toml").read_text(encoding="utf-8"))


def test_readme_names_the_two_commands(project_root: Path) -> None:
    readme = (project_root / "README.md").read_text(encoding="utf-8")
    assert "make run" in readme
    assert "make test" in readme


def test_files_the_documents_link_to_exist(project_root: Path) -> None:
    missing = [
        f"{document.relative_to(project_root)}: {target}"
        for document in [*project_root.glob("*.md"), *(project_root / "docs").rglob("*.md")]
        for target in re.findall(r"\]\((?![a-z]+:|#)([^)#]+)", document.read_text(encoding="utf-8"))
        if not (document.parent / target).exists()
    ]
    assert missing == []


def test_readme_names_every_flag_of_the_program(project_root: Path) -> None:
    flags = ["--host", "--port", "--data-dir", "--model", "--no-browser", "--config"]
    readme = (project_root / "README.md").read_text(encoding="utf-8")
    assert [flag for flag in flags if flag not in readme] == []


def test_every_rule_of_the_makefile_says_what_it_does(project_root: Path) -> None:
    makefile = (project_root / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    assert [rule for rule in phony[1].split() if not re.search(rf"^{rule}: ## .", makefile, re.MULTILINE)] == []


def test_ci_runs_the_tests_and_builds_the_program(project_root: Path) -> None:
    lines = (project_root / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line and not line.startswith(("#", "set ", "cd "))] == [
        "make test",
        "make package",
        "make test-package",
    ]


def test_the_two_pillars_are_pinned_exactly(pyproject: dict[str, Any]) -> None:
    exact = [spec.partition("==")[0] for spec in pyproject["project"]["dependencies"] if "==" in spec]
    assert exact == ["gradio", "llama-cpp-python"]


def test_lock_files_agree_with_pyproject_and_each_other(project_root: Path, pyproject: dict[str, Any]) -> None:
    runtime = pins((project_root / "requirements.lock").read_text(encoding="utf-8"))
    for_tests = pins((project_root / "requirements-dev.lock").read_text(encoding="utf-8"))
    apart = pins((project_root / "packaging" / "llama.lock").read_text(encoding="utf-8"))
    wanted = {re.split(r"[^A-Za-z0-9_-]", spec)[0].replace("-", "_") for spec in pyproject["project"]["dependencies"]}
    assert wanted <= runtime.keys() | apart.keys()
    assert f"llama-cpp-python=={apart['llama_cpp_python']}" in pyproject["project"]["dependencies"]
    assert f"gradio=={runtime['gradio']}" in pyproject["project"]["dependencies"]
    assert runtime.items() <= for_tests.items()


def test_every_pin_has_a_hash(project_root: Path) -> None:
    for lock in [*project_root.glob("*.lock"), *(project_root / "packaging").glob("*.lock")]:
        entries = re.split(r"^(?=[A-Za-z])", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_no_file_names_a_registry_or_a_path_of_one_machine(project_root: Path) -> None:
    found = [
        f"{path.relative_to(project_root)}: {word}"
        for path in text_files(project_root)
        for word in REGISTRY_HOSTS + MACHINE_PATHS
        if word in path.read_text(encoding="utf-8", errors="replace")
    ]
    assert found == []
