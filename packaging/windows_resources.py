"""What Windows shows of a program file: its icon and its version. Used by office_chat.spec there."""

from __future__ import annotations

from pathlib import Path

from appliance import __version__

_SIZES = [(16, 16), (32, 32), (48, 48), (256, 256)]


def icon(root: Path, folder: Path) -> Path:
    """The page's icon as an .ico file in `folder`; returns its path."""
    from PIL import Image

    path = folder / "office-chat.ico"
    with Image.open(root / "ui" / "assets" / "icon.png") as image:
        image.save(path, sizes=_SIZES)
    return path


def version(folder: Path) -> Path:
    """The version resource as PyInstaller reads it, in `folder`; returns its path."""
    path = folder / "version.txt"
    path.write_text(version_text(__version__), encoding="utf-8")
    return path


def version_text(number: str) -> str:
    """The source of the resource for a version like `1.2.3`."""
    four = tuple([int(part) for part in number.split(".")] + [0] * 4)[:4]
    strings = {
        "CompanyName": "Office Chat",
        "FileDescription": "Office Chat",
        "FileVersion": number,
        "InternalName": "office-chat",
        "OriginalFilename": "office-chat.exe",
        "ProductName": "Office Chat",
        "ProductVersion": number,
    }
    entries = ", ".join(f"StringStruct({key!r}, {value!r})" for key, value in strings.items())
    return (
        f"VSVersionInfo(ffi=FixedFileInfo(filevers={four}, prodvers={four}, mask=0x3F, flags=0, OS=0x40004, "
        f"fileType=1, subtype=0, date=(0, 0)), kids=[StringFileInfo([StringTable('040904B0', [{entries}])]), "
        "VarFileInfo([VarStruct('Translation', [1033, 1200])])])\n"
    )
