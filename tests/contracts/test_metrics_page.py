"""docs/metrics.md lists what /metrics says, and nothing else."""

from __future__ import annotations

import re
import time
from pathlib import Path

from appliance.metrics.registry import Metrics, Situation


def test_the_page_lists_every_metric_with_its_labels(project_root: Path) -> None:
    metrics = Metrics(time.monotonic, Situation)
    told = {
        family.name + ("_total" if family.type == "counter" else ""): family.type
        for family in metrics.registry.collect()
    }
    page = (project_root / "docs" / "metrics.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(office_chat_\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert listed == told
