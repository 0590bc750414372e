"""The arrows of docs/architecture.md, read off the syntax trees: who may import whom, and how long a module may get."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

CHECKED = ("appliance", "ui", "packaging", "bench")  # and the modules lying at the top: app.py
MAX_LINES = 400

# Third party: the only places that may import it.
OWNERS = {
    "gradio": ("ui/*", "app.py"),
    "gradio_client": (),
    "re2": ("appliance/wording.py",),
    "llama_cpp": ("appliance/engine/llama_*.py", "bench/*"),
    "diskcache": ("appliance/answer_cache.py", "appliance/engine/parked_disk.py", "appliance/engine/bytes_disk.py"),
    "argon2": ("appliance/passwords.py",),
    "itsdangerous": ("appliance/person.py", "appliance/logins.py", "appliance/this_pc.py"),
    "limits": ("appliance/rate_limits.py",),
    "prometheus_client": ("appliance/metrics.py",),
    "huggingface_hub": ("appliance/hub.py",),
    "httpx2": ("appliance/hub.py",),
    "segno": ("appliance/front_door.py",),
    "zeroconf": ("appliance/local_name.py",),
    "tomlkit": ("appliance/settings_store.py", "appliance/rule_edits.py"),
    "psutil": ("appliance/health.py", "appliance/network.py", "appliance/engine/cpu.py", "bench/*"),
}
# Importer, what it must not import, and the exceptions.
FORBIDDEN = (
    ("appliance/*", "ui", ()),
    ("appliance/*", "app", ()),
    ("appliance/*", "bench", ()),
    ("appliance/engine/*", "appliance", ("appliance.engine", "appliance.errors")),
    ("ui/*", "app", ()),
    # The page talks to the chat service; from the engine it knows the types that go through it.
    ("ui/*", "appliance.engine", ("appliance.engine.request",)),
)


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


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def violations(path: str, source: str) -> list[str]:
    """Sentences about the imports of the module at `path` (relative, with `/`) that break a rule."""
    found = []
    for name in imports(source):
        top = name.partition(".")[0]
        if top in OWNERS and not any(fnmatch(path, owner) for owner in OWNERS[top]):
            found.append(f"{path} imports {name}: only {', '.join(OWNERS[top]) or 'nobody'} may")
        found += [
            f"{path} imports {name}: {importer} must not import {package}"
            for importer, package, exceptions in FORBIDDEN
            if fnmatch(path, importer) and is_in(name, package) and not any(is_in(name, other) for other in exceptions)
        ]
    return found


def test_every_import_follows_the_arrows(project_root: Path) -> None:
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
    assert {Path("appliance/errors.py"), Path("packaging/setup_env.py")} <= set(sources(project_root))


def test_packaging_does_not_shadow_the_package_of_that_name(project_root: Path) -> None:
    assert not (project_root / "packaging" / "__init__.py").exists()


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("appliance/chat.py", "import gradio as gr"),
        ("appliance/chat.py", "def late():\n    from gradio import Blocks"),
        ("appliance/chat.py", "from ui import messages"),
        ("appliance/chat.py", "import importlib\nimportlib.import_module('ui.messages')"),
        ("appliance/engine/process.py", "import llama_cpp"),
        ("appliance/engine/workshop.py", "import llama_cpp"),
        ("appliance/engine/process.py", "from appliance import settings"),
        ("appliance/engine/process.py", "from appliance.chat import ChatService"),
        ("appliance/models.py", "from diskcache import Cache"),
        ("appliance/guard.py", "import re2"),
        ("appliance/admission.py", "import psutil"),
        ("ui/chat_page.py", "from appliance.engine.client import EngineClient"),
        ("app.py", "import llama_cpp"),
    ],
)
def test_a_broken_arrow_is_noticed(path: str, source: str) -> None:
    assert len(violations(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("ui/chat_page.py", "import gradio as gr\nfrom appliance.chat import ChatService"),
        ("ui/chat_page.py", "from appliance.engine.request import FinishReason"),
        ("app.py", "def main():\n    import gradio as gr\n    from ui import interface"),
        ("appliance/engine/llama_backend.py", "import llama_cpp\nfrom appliance.errors import ModelFileError"),
        ("appliance/engine/client.py", "from appliance.engine.request import Request"),
        ("appliance/chat.py", "import uiautomator, application"),
    ],
)
def test_an_allowed_import_is_left_alone(path: str, source: str) -> None:
    assert violations(path, source) == []
