"""The exception tree. Every refusal carries a `code`; ui/words/messages.py has the sentence a person reads for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType


class ApplianceError(Exception):
    """Anything this program raises on purpose. `str(error)` is a sentence for the owner."""


class SettingsError(ApplianceError):
    """A setting that cannot be used: names the key, the value and what would be right.

    `key` and `rule` say the same for the admin page, which has its own sentences; "" where there is no such thing.
    """

    def __init__(self, sentence: str, key: str = "", rule: str = "", **values: object) -> None:
        super().__init__(sentence)
        self.key = key
        self.rule = rule
        self.values: Mapping[str, object] = values


class ChangedMeanwhile(ApplianceError):
    """Somebody else has changed the same thing since it was shown. `names`: what."""

    def __init__(self, *names: str) -> None:
        super().__init__(f"changed meanwhile: {', '.join(names)}")
        self.names = names


class ModelFileError(ApplianceError):
    """A model file that cannot be used: names the file, what is wrong with it and the remedy."""

    def __init__(
        self, path: Path, problem: str, remedy: str, code: str = "unusable", values: Mapping[str, object] | None = None
    ) -> None:
        """`code` names the sentence for the owner's page, `model_<code>`, and `values` fill its blanks."""
        super().__init__(f"{path}: {problem}. {remedy}")
        self.path = path
        self.problem = problem
        self.remedy = remedy
        self.code = code
        self.values = dict(values or {})

    def __reduce__(self) -> tuple[type[ModelFileError], tuple[Path, str, str, str, dict[str, object]]]:
        return type(self), (self.path, self.problem, self.remedy, self.code, self.values)


class Refused(ApplianceError):
    """A question that is not taken. Nothing was evaluated for it and nothing is lost."""

    code = "refused"
    values: Mapping[str, object] = MappingProxyType({})
    """What fills the blanks of its sentence."""


class Busy(Refused):
    """Every place, the waiting ones included, is taken."""

    code = "busy"


class SavedOnly(Busy):
    """For now only saved and quick answers are given, and this question has none."""

    code = "saved_only"


class Overloaded(Busy):
    """For now nobody new is taken."""

    code = "overloaded"


class NotReady(Refused):
    """The engine is still loading or is being restarted."""

    code = "not_ready"


class EmptyInput(Refused):
    """Nothing but white space was sent."""

    code = "empty"


class NothingToRepeat(Refused):
    """Ask again or Continue, where no question stands or its answer is complete."""

    code = "nothing_to_repeat"


class InputTooLong(Refused):
    """More characters or tokens than a message may have."""

    code = "too_long"


class AlreadyAnswering(Refused):
    """This conversation, or this person, has as many running answers as it may have."""

    code = "already_answering"


class UnknownPerson(Refused):
    """The request carries no valid person cookie or tab id."""

    code = "unknown_person"


class TooFast(Refused):
    """More questions or wrong passwords than one may send in a minute. `wait_s`: when the next one is taken, s."""

    code = "too_fast"

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"again in {wait_s} s")
        self.wait_s = wait_s
        self.values = {"seconds": wait_s}


class UnknownHost(Refused):
    """The request was sent to a name that is not this PC's: perhaps a foreign page's trick (DNS rebinding)."""

    code = "unknown_host"


class ForeignOrigin(Refused):
    """A page from elsewhere is behind the request."""

    code = "foreign_origin"


class LoginNeeded(Refused):
    """The page asks for the passcode, and this request carries no login that counts."""

    code = "login_needed"


class NeedsKey(Refused):
    """A program without an API key."""

    code = "needs_key"


class NeedsAdmin(Refused):
    """The admin's password has not been given."""

    code = "needs_admin"


class NotAdmin(Refused):
    """Somebody known, but not the admin."""

    code = "not_admin"


class EngineFailed(ApplianceError):
    """The engine ended and no other could take over. `key` names the owner's sentence, `values` fill its blanks."""

    code = "engine_failed"

    def __init__(self, sentence: str, key: str = "", **values: object) -> None:
        super().__init__(sentence)
        self.key = key
        self.values = values


class WrongNumbers(ApplianceError):
    """Kernels computed a known model and came to other numbers."""

    def __init__(self, kernels: str, error: float) -> None:
        super().__init__(kernels, error)
        self.kernels = kernels
        self.error = error

    def __str__(self) -> str:
        return f"the kernels {self.kernels} compute wrong numbers (off by {self.error:.2g})"


class NoKernels(ApplianceError):
    """Every kind of kernels that this CPU could run has failed or is missing."""


class Closing(Refused):
    """The program is shutting down: nothing new is taken, running answers are ended."""

    code = "closing"


class StartFailed(ApplianceError):
    """The program cannot start here (port taken, folder not writable): the sentence names the remedy."""
