"""Whatever the model library refuses has a sentence for the owner's page."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from appliance.base import errors
from ui.words.messages import known

PREFIXES = {"ModelFileError": (3, "model_"), "DownloadFailed": (0, "download_"), "FetchFailed": (0, "download_")}
"""Which argument is the code, and how its sentence's key begins."""


def codes(root: Path) -> Iterator[str]:
    for path in (root / "appliance").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in PREFIXES:
                number, prefix = PREFIXES[node.func.id]
                for part in ast.walk(node.args[number]) if len(node.args) > number else ():
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield prefix + part.value


def test_every_code_has_a_sentence(project_root: Path) -> None:
    found = set(codes(project_root))
    assert {"model_cut_off", "model_parts_missing", "download_no_network", "download_wrong_hash"} <= found
    assert [key for key in sorted(found) if not known(key)] == []
    assert all(known(f"model_{code}") for code in ("empty", "web_page", "pointer", "archive", "foreign", "unusable"))
    assert all(known(f"download_{phase}") for phase in ("asking", "loading", "checking", "done", "stopped"))


def test_a_model_error_without_a_code_has_the_general_one() -> None:
    assert errors.ModelFileError(Path("m.gguf"), "x", "y").code == "unusable"
