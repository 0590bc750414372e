"""`make lock`: every lock file from the ranges in pyproject.toml, with hashes and without the name of an index."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from console import say
from environment import pins

OPTIONS = (
    "--python-version=3.11",
    "--python-platform=linux",
    "--generate-hashes",
    "--no-annotate",
    "--quiet",
    "--custom-compile-command=make lock",
)
LEAVE_OUT = "--no-emit-package=llama-cpp-python"  # compiled apart, with our flags


def renew(root: Path, upgrade: bool) -> None:
    """Write the six lock files; pins already there are kept where they still fit, unless `upgrade`."""
    import tomllib  # not in older Pythons, which must get as far as our sentence about their version

    project = tomllib.loads((root / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    llama = next(spec for spec in project["project"]["dependencies"] if spec.startswith("llama-cpp-python"))
    jobs: dict[str, tuple[list[str], list[str]]] = {
        "requirements.lock": (["pyproject.toml", LEAVE_OUT], []),
        "requirements-dev.lock": (["pyproject.toml", "--group=dev", "--constraint=requirements.lock", LEAVE_OUT], []),
        "packaging/build.lock": (["-"], groups["build"]),
        "packaging/freeze.lock": (["-", "--universal"], groups["freeze"]),
        "packaging/llama.lock": (["-", "--no-deps", "--no-binary=llama-cpp-python"], [llama]),
        "packaging/starter.lock": (["-", "--no-deps"], groups["starter"]),
    }
    with tempfile.TemporaryDirectory(prefix="office-chat-lock-") as scratch:
        subprocess.run([sys.executable, "-E", "-s", "-m", "venv", scratch], check=True)
        python = str(Path(scratch) / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", *groups["lock"]], check=True)
        for target, (arguments, specs) in jobs.items():
            options = [option for option in OPTIONS if "platform" not in option or "--universal" not in arguments]
            command = [python, "-m", "uv", "pip", "compile", *arguments, *options, f"--output-file={target}"]
            command += ["--upgrade"] if upgrade else []
            subprocess.run(command, check=True, cwd=root, input="\n".join(specs), text=True)
            say(f"{target}: {len(pins((root / target).read_text()))} pins")
