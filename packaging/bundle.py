"""The frozen program's folder: made small, checked, and packed. Knows nothing of how it was frozen."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import stat
import struct
import subprocess
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from console import SetupError

MAX_BYTES = 250_000_000
NEWEST_GLIBC = (2, 36)
"""Of Debian 12, the oldest system it is made for. What was built on a newer one asks for more."""
TOP = "office-chat"
"""The one folder inside every archive."""
_EPOCH = (2026, 1, 1, 0, 0, 0)
"""Time of every file in an archive, so that the same build gives the same sums."""
_GLIBC = re.compile(rb"\x00GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\x00)")
_INTERNAL = "_internal"
_SHT_DYNAMIC = 6
_DT_SEARCH = (15, 29)


def files_of(folder: Path) -> list[Path]:
    """Every file below, in the order of their names."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def size_bytes(folder: Path, but: str = "models") -> int:
    """Bytes of all files, those in the folder `but` left out."""
    return sum(path.stat().st_size for path in files_of(folder) if path.relative_to(folder).parts[0] != but)


def check_size(folder: Path) -> int:
    """Its bytes without models; raises SetupError above the limit, with the largest files."""
    size = size_bytes(folder)
    if size > MAX_BYTES:
        largest = sorted(files_of(folder), key=_size, reverse=True)[:5]
        named = ", ".join(f"{path.relative_to(folder)} {_size(path) // 10**6} MB" for path in largest)
        raise SetupError(
            f"the program has {size // 10**6} MB, at most {MAX_BYTES // 10**6} are allowed. Largest: {named}"
        )
    return size


def check_llama(folder: Path) -> list[str]:
    """Names of the kernels for single kinds of CPU; raises SetupError where the library or they are missing."""
    place = folder / _INTERNAL / "llama_cpp" / "lib"
    names = {path.name for path in place.glob("*")}
    kernels = sorted(name for name in names if "ggml-cpu-" in name)
    missing = [part for part in ("llama", "ggml", "ggml-base") if not any(_is_library(name, part) for name in names)]
    if missing or len(kernels) < 2:
        raise SetupError(f"{place}: missing {', '.join(missing) or 'the kernels for every CPU'}; found {sorted(names)}")
    return kernels


def _is_library(name: str, part: str) -> bool:
    return re.fullmatch(rf"(lib)?{part}\.(so(\.\d+)*|dll|\d*\.?dylib)", name) is not None


def strip_names(folder: Path) -> None:
    """Drop names for debuggers from Python's and llama.cpp's libraries; others are patched, which strip may break."""
    program = shutil.which("strip")
    if program is None or os.name != "posix":
        return
    internal = folder / _INTERNAL
    for path in [*internal.glob("libpython*.so*"), *(internal / "llama_cpp" / "lib").glob("*.so*")]:
        subprocess.run([program, "--strip-unneeded", str(path)], check=True)


def forget_build_machine(folder: Path) -> None:
    """Python's libraries may name a folder of the machine it was built on as the first to look for libraries in."""
    for path in files_of(folder):
        content = path.read_bytes()
        for place in search_paths(content):
            if not place.startswith("$ORIGIN"):
                old, new = place.encode(), b"$ORIGIN".ljust(len(place.encode()), b"\0")
                if len(new) != len(old):
                    raise SetupError(f"{path.name} looks for libraries in {place}, and that cannot be changed in place")
                content = content.replace(b"\0" + old + b"\0", b"\0" + new + b"\0")
                path.write_bytes(content)


def search_paths(elf: bytes) -> list[str]:
    """What a 64-bit little-endian ELF file names as folders for libraries (DT_RPATH, DT_RUNPATH)."""
    if elf[:6] != b"\x7fELF\x02\x01":
        return []
    offset, size, count = struct.unpack_from("<Q", elf, 0x28)[0], *struct.unpack_from("<HH", elf, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, offset + size * n) for n in range(count)]
    found = []
    for _, kind, _, _, start, length, link, *_ in sections:
        if kind == _SHT_DYNAMIC:
            texts = sections[link][4]
            for place in range(start, start + length, 16):
                tag, value = struct.unpack_from("<QQ", elf, place)
                if tag in _DT_SEARCH:
                    found.append(elf[texts + value : elf.index(b"\0", texts + value)].decode())
    return found


def highest_glibc(folder: Path) -> tuple[str, str]:
    """The newest version of the C library that a file asks for, as `2.34`, and the file; two empty ones without ELF."""
    best, where = (0, 0), ""
    for path in files_of(folder):
        content = path.read_bytes()
        if not content.startswith(b"\x7fELF"):
            continue
        for major, minor in _GLIBC.findall(content):
            if (int(major), int(minor)) > best:
                best, where = (int(major), int(minor)), path.relative_to(folder).as_posix()
    return (f"{best[0]}.{best[1]}", where) if where else ("", "")


def check_glibc(folder: Path) -> tuple[str, str]:
    """As `highest_glibc`; raises SetupError where systems it is made for have an older C library."""
    version, file = highest_glibc(folder)
    if version and tuple(map(int, version.split("."))) > NEWEST_GLIBC:
        at_most = ".".join(map(str, NEWEST_GLIBC))
        raise SetupError(f"{file} asks for glibc {version}, and Debian 12 has {at_most}. Build on Debian 12 or older.")
    return version, file


def write_zip(folder: Path, target: Path) -> None:
    """Pack `folder` as office-chat/. Modes are kept, times are not."""
    _add(target, [(path, path.relative_to(folder).as_posix()) for path in files_of(folder)])


def write_zip_with(archive: Path, target: Path, more: Iterable[tuple[Path, str]]) -> None:
    """The same once more, with files under names inside office-chat/; what is packed is not packed again."""
    shutil.copyfile(archive, target)
    _add(target, more)


def _add(target: Path, entries: Iterable[tuple[Path, str]]) -> None:
    with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path, name in entries:
            entry = zipfile.ZipInfo(f"{TOP}/{name}", _EPOCH)
            entry.external_attr = (stat.S_IFREG | _mode(path)) << 16
            entry.create_system = 3  # Unix: only then the modes are read
            entry.compress_type = zipfile.ZIP_STORED if path.suffix == ".gguf" else zipfile.ZIP_DEFLATED
            with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as packed:
                shutil.copyfileobj(source, packed, 2**20)


def write_one_file(script: Path, folder: Path, target: Path, more: Iterable[tuple[Path, str]] = ()) -> None:
    """A shell script with the packed folder behind it: see one_file.sh."""
    entries = [(path, path.relative_to(folder).as_posix()) for path in files_of(folder)] + list(more)
    payload, listed = target.with_suffix(".payload"), target.with_suffix(".files")
    listed.write_text("".join(f"{name}\n" for _, name in entries), encoding="utf-8")
    with (
        payload.open("wb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed_file,
        tarfile.open(fileobj=packed_file, mode="w") as archive,
    ):
        for path, name in [*entries, (listed, "files.txt")]:
            info = archive.gettarinfo(str(path), name)
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = 0
            info.mode = _mode(path)
            with path.open("rb") as source:
                archive.addfile(info, source)
    text = script.read_text(encoding="utf-8")
    filled = {"@NAME@": sha256(payload)[:16], "@FIRST_LINE@": str(text.count("\n") + 1)}
    for blank, value in filled.items():
        text = text.replace(blank, value)
    with target.open("wb") as whole, payload.open("rb") as packed:
        whole.write(text.encode())
        shutil.copyfileobj(packed, whole, 2**20)
    payload.unlink()
    listed.unlink()
    target.chmod(0o755)


def sha256(path: Path) -> str:
    """Digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sums(files: Iterable[Path], target: Path) -> None:
    """As `sha256sum -c` reads them."""
    target.write_text("".join(f"{sha256(path)}  {path.name}\n" for path in files), encoding="utf-8")


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack one of our zips with its modes; returns the program's folder."""
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            path = Path(packed.extract(entry, folder))
            path.chmod(entry.external_attr >> 16 & 0o777)
    return folder / TOP


def _mode(path: Path) -> int:
    return 0o755 if os.access(path, os.X_OK) else 0o644


def _size(path: Path) -> int:
    return path.stat().st_size
