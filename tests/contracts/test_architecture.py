"""The arrows of docs/architecture.md: those of packages by import-linter, whose layers stand in pyproject.toml; who may
import a library of others, and how long a module may get, read off the syntax trees.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

import import_graph

CHECKED = ("appliance", "ui", "packaging", "bench")  # and the modules lying at the top: app.py
MAX_LINES = 400

# The only places that may import these: libraries of others, and what starts or measures the program.
OWNERS = {
    "app": ("packaging/*",),
    "bench": ("bench/*",),
    "gradio": ("ui/*", "app.py"),
    "gradio_client": (),
    "re2": ("appliance/answers/text_matching.py",),
    "llama_cpp": ("appliance/engine/llama_*.py", "appliance/tuning/llama_*.py", "bench/*"),
    "diskcache": (
        "appliance/answers/answer_cache.py",
        "appliance/engine/parked_disk.py",
        "appliance/base/bytes_disk.py",
    ),
    "argon2": ("appliance/access/passwords.py",),
    "itsdangerous": ("appliance/access/person.py", "appliance/access/logins.py", "appliance/access/this_pc.py"),
    "limits": ("appliance/access/rate_limits.py",),
    "prometheus_client": ("appliance/metrics/registry.py",),
    "huggingface_hub": ("appliance/models/hub.py",),
    "httpx2": ("appliance/models/hub.py",),
    "segno": ("appliance/network/front_door.py",),
    "zeroconf": ("appliance/network/local_name.py",),
    "tomlkit": ("appliance/settings/store.py", "appliance/answers/rule_edits.py"),
    "jinja2": ("appliance/engine/chat_template.py",),
    "psutil": ("appliance/metrics/health.py", "appliance/network/interfaces.py", "appliance/engine/cpu.py", "bench/*"),
}


def sources(root: Path) -> list[Path]:
    """Every module that ships or measures, relative to `root`."""
    found = [*root.glob("*.py"), *(path for folder in CHECKED for path in (root / folder).rglob("*.py"))]
    return sorted(path.relative_to(root) for path in found)


def imports(source: str) -> Iterator[str]:
    """Full names of all imports in `source`, wherever in the module they stand: `from a import b` gives `a.b`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import (banned by ruff) shows as a name with a leading dot, which no rule allows or knows.
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def violations(path: str, source: str) -> list[str]:
    """Sentences about the imports of the module at `path` (relative, with `/`) that break a rule."""
    return [
        f"{path} imports {name}: only {', '.join(OWNERS[top]) or 'nobody'} may"
        for name in imports(source)
        if (top := name.partition(".")[0]) in OWNERS and not any(fnmatch(path, owner) for owner in OWNERS[top])
    ]


def test_a_package_imports_only_what_stands_below_it(project_root: Path) -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    run = subprocess.run(command, cwd=project_root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_package_has_its_layer(project_root: Path) -> None:
    listed = {name for layer in import_graph.layers() for name in layer}
    rooms = {
        f"{top}.{path.stem}"
        for top in ("appliance", "ui")
        for path in (project_root / top).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert listed == rooms - {"appliance.__init__", "ui.__init__"}
    assert len(listed) <= 20


def test_the_document_shows_the_packages_as_they_are(project_root: Path) -> None:
    written = (project_root / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert import_graph.render() in written, "run `make docs`"


def test_a_library_is_imported_in_one_place(project_root: Path) -> None:
    found = [
        sentence
        for path in sources(project_root)
        for sentence in violations(path.as_posix(), (project_root / path).read_text())
    ]
    assert not found, "\n".join(found)


def test_no_module_is_too_long_to_read(project_root: Path) -> None:
    lengths = {path: len((project_root / path).read_text().splitlines()) for path in sources(project_root)}
    assert {str(path): n_lines for path, n_lines in lengths.items() if n_lines > MAX_LINES} == {}


def test_the_modules_were_found(project_root: Path) -> None:
    assert {Path("appliance/base/errors.py"), Path("packaging/setup_env.py")} <= set(sources(project_root))


def test_packaging_does_not_shadow_the_package_of_that_name(project_root: Path) -> None:
    assert not (project_root / "packaging" / "__init__.py").exists()


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("appliance/chat/service.py", "import gradio as gr"),
        ("appliance/chat/service.py", "def late():\n    from gradio import Blocks"),
        ("appliance/chat/service.py", "import importlib\nimportlib.import_module('gradio.blocks')"),
        ("appliance/chat/service.py", "from app import build_page"),
        ("appliance/engine/process.py", "import llama_cpp"),
        ("appliance/tuning/worker_jobs.py", "import llama_cpp"),
        ("appliance/models/catalogue.py", "from diskcache import Cache"),
        ("ui/chat/page.py", "from bench.questions import Questions"),
        ("app.py", "import llama_cpp"),
    ],
)
def test_an_import_elsewhere_is_noticed(path: str, source: str) -> None:
    assert len(violations(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("ui/chat/page.py", "import gradio as gr\nfrom appliance.chat.service import ChatService"),
        ("app.py", "def main():\n    import gradio as gr\n    from ui import interface"),
        ("appliance/engine/llama_backend.py", "import llama_cpp\nfrom appliance.base.errors import ModelFileError"),
        ("appliance/chat/service.py", "import uiautomator, application"),
    ],
)
def test_an_import_in_its_place_is_left_alone(path: str, source: str) -> None:
    assert violations(path, source) == []
