"""A bound on the memory of a program that is started for a measurement."""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """A bound and what exactly it bounds."""

    apply: Callable[[], None]
    """To be called in the new process before it begins; its children inherit it."""
    says: str


def data_limit(n_bytes: int) -> Limit:
    """RLIMIT_DATA: needs no rights and no control groups, so that it works on every Linux.

    It counts address space for writable private memory, touched or not, and counts for each process apart. A control
    group counts resident pages of all processes together: the peak of those is measured beside it.
    """

    def apply() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (n_bytes, n_bytes))

    says = f"Ran under RLIMIT_DATA = {n_bytes / 2**30:g} GB, which bounds the writable memory of each process apart."
    return Limit(apply, says)
