"""docs/settings.md is what the program says about itself."""

from __future__ import annotations

from pathlib import Path

import settings_page


def test_the_settings_page_is_up_to_date(project_root: Path) -> None:
    written = (project_root / "docs" / "settings.md").read_text(encoding="utf-8")
    assert written == settings_page.render(), "run `make docs`"
