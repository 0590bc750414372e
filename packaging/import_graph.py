"""Writes the packages and their arrows into docs/architecture.md (`make docs`), highest first, read off the code."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Final

import grimp

BEGIN: Final = "<!-- packages: written by `make docs` -->\n"
END: Final = "<!-- end -->"
ROOT: Final = Path(__file__).resolve().parent.parent


def layers() -> list[list[str]]:
    """The packages as the contract in pyproject.toml orders them: a layer imports only what stands below it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    return [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]


def render() -> str:
    """A Markdown table: each package, what its docstring says, and what it imports."""
    graph = grimp.build_graph("appliance", "ui", cache_dir=None)
    names = [name for layer in layers() for name in layer]
    rows = ["| package | what it answers | imports |", "| --- | --- | --- |"]
    for name in names:
        below = [other for other in names if other != name and _imports(graph, name, other)]
        rows.append(f"| `{name}` | {_docstring(name)} | {', '.join(_short(name, other) for other in below) or '–'} |")
    return "\n".join(rows) + "\n"


def _imports(graph: grimp.ImportGraph, name: str, other: str) -> bool:
    inside = {other, *graph.find_descendants(other)}
    importers = {name, *graph.find_descendants(name)}
    return any(graph.find_modules_directly_imported_by(importer) & inside for importer in importers)


def _short(name: str, other: str) -> str:
    """Without the top where it is the same."""
    top = name.partition(".")[0] + "."
    return other.removeprefix(top)


def _docstring(name: str) -> str:
    path = ROOT / name.replace(".", "/")
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    return source.split('"""')[1].split("\n\n")[0].replace("\n", " ").removesuffix(".")


def main(page: Path) -> None:
    """Put the table between its marks."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    page.write_text(before + BEGIN + render() + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
