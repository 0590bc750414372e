"""Writes docs/settings.md from the settings table (`make docs`), so that the page cannot drift from the program."""

from __future__ import annotations

import sys
from pathlib import Path

from appliance.settings.files import ENV_PREFIX
from appliance.settings.schema import Settings, expected

HEAD = f"""# Settings

Written by `make docs` from the table in `appliance/settings/schema.py`.

Each stands in `office-chat.toml` by its name, in the environment as `{ENV_PREFIX}` and the name in capitals, and a few
as a flag of `app.py`. A flag wins over the environment, the environment over the file. "Live" settings that are
changed on the admin page act at once, the others when the program starts again.

An unknown name or a bad value in the file stops the start with a sentence. A file that cannot be read any more, or is
only the beginning of what it was (a power cut), is put aside as `office-chat.toml.damaged`; the last good one, kept
beside it as `.good`, takes its place, and terminal and admin page say so. To shorten the file on purpose while the
program is stopped, delete the `.good` too.

| setting | default | what it does | expected | applies |
| --- | --- | --- | --- | --- |
"""


def render() -> str:
    """The whole page."""
    rows = []
    for key, row in Settings.model_fields.items():
        extra = row.json_schema_extra if isinstance(row.json_schema_extra, dict) else {}
        cells = [f"`{key}`", _default(row.default), row.description or "", expected(key), str(extra.get("applies", ""))]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return HEAD + "\n".join(rows) + "\n"


def _default(value: object) -> str:
    if value is None or value == "":
        return "not set"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(), encoding="utf-8")
