"""What the engine may use of this computer's processors."""

from __future__ import annotations

import psutil


def physical_cores() -> int:
    """Physical cores this process may run on: a second thread on the same core slows the kernels down."""
    allowed = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else psutil.cpu_count()
    return max(1, min(psutil.cpu_count(logical=False) or 1, allowed or 1))
