"""Which kernels the next engine tries: the best that have not failed here, one level down for each that has."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from appliance.base.errors import ApplianceError, EngineFailed, ModelFileError
from appliance.engine.kernels import BUILT_IN, CRASHES, Failure, n_passed_over
from appliance.engine.wire import Kernels

log = logging.getLogger(__name__)

_N_CRASHES = 2
_CRASHES_S = 600.0
"""So many crashes within it, while the engine serves, are taken for the kernels': one may be anything."""


class StepDown:
    """Owned by one thread. `failures` is what failed so far."""

    def __init__(
        self,
        failures: tuple[Failure, ...] = (),
        keep: Callable[[tuple[Failure, ...]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`keep` is told of every change, to write it down; the clock is in seconds."""
        self.failures = failures
        self._keep = keep
        self._clock = clock
        self._present = Kernels("")
        self._suspects: list[Failure] = []
        """Kernels that were right and died while they loaded the model: either may be the reason."""
        self._crashed_at: deque[float] = deque(maxlen=_N_CRASHES)

    @property
    def n_passed_over(self) -> int:
        """For the next engine's configuration."""
        return n_passed_over(self.failures)

    def began(self) -> None:
        """Another engine has been started, and has said nothing yet."""
        self._present = Kernels("")

    def trying(self, kernels: Kernels) -> None:
        """What the engine that loads says it is about to do, or has done."""
        self._present = kernels

    def ready(self) -> None:
        """The model is loaded: these kernels are in use."""
        self._suspects.clear()

    def after_loading_ended(self, how: str) -> bool:
        """An engine ended before it was ready; whether another one may do better with simpler kernels."""
        if how not in CRASHES or not self._present.name:
            return False
        failure = Failure(self._present.name, how)
        if self._present.are_right:
            self._suspects.append(failure)
        self.failed(failure)
        return True

    def after_crash(self, how: str) -> bool:
        """An engine ended that had been ready; whether the next one computes with simpler kernels."""
        if how not in CRASHES or not self._present.name or self._present.name == BUILT_IN:
            return False
        now = self._clock()
        self._crashed_at.append(now)
        if len(self._crashed_at) < _N_CRASHES or now - self._crashed_at[0] > _CRASHES_S:
            return False
        self._crashed_at.clear()
        self.failed(Failure(self._present.name, how))
        return True

    def failed(self, failure: Failure) -> None:
        """Pass these kernels over from now on."""
        log.error("kernels failed (%s)", failure)
        self.use((*self.failures, failure))

    def none_left(self, model: Path | None) -> ApplianceError:
        """What to tell the owner: the kernels' fault where none was ever right here, else the model file's."""
        tried = "; ".join(map(str, self.failures)) or "nothing could be tried"
        if self._suspects and model is not None:
            self.use(tuple(each for each in self.failures if each not in self._suspects))
            self._suspects.clear()
            problem = f"llama.cpp dies on it with every kind of kernels ({tried})"
            return ModelFileError(model, problem, "Choose another GGUF file.", "kills")
        return EngineFailed(
            f"no kernels in this build of llama.cpp run on this CPU ({tried}). From a checkout: delete the folder "
            "wheels and run again, which compiles it anew. Otherwise get the program made for this kind of computer.",
            "no_kernels",
            tried=tried,
        )

    def use(self, failures: tuple[Failure, ...]) -> None:
        """Go by these; none tries everything again."""
        if failures != self.failures:
            self.failures = failures
            if self._keep is not None:
                self._keep(failures)
