"""A model file's chat template: somebody else's program, run in a sandbox, for at most a second and some memory.

Templates differ in what they take: some raise on a system message, some on anything but strict turns. What a template
takes is found out once, and only one that refuses a plain user's message is refused.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import FrameType
from typing import Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from appliance.base.errors import ApplianceError
from appliance.engine.cpu import address_space_bytes

RENDER_S: Final = 1.0
"""Longest time of one rendering; a real template takes about a millisecond."""
RENDER_BYTES: Final = 256 * 2**20
"""Memory one rendering may ask for. What it writes is some kilobytes."""
MAX_SOURCE_CHARS: Final = 200_000

_CANNOT: Final = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    MemoryError,
    RecursionError,
)
"""What a template's own expressions can raise: `1 // 0`, or text plus a number."""


class TemplateUnusable(ApplianceError):
    """The chat template cannot render a plain user's message."""


class TemplateRefuses(ApplianceError):
    """The template does not take messages of these roles in this order, or not in time."""


class ChatTemplate:
    """What it takes, and what it writes around messages. Belongs to the main thread of its process."""

    def __init__(self, source: str, template_globals: Mapping[str, Any]) -> None:
        """Raises TemplateUnusable."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _Generation],  # published templates use break and continue
        )
        environment.globals |= {**template_globals, "raise_exception": _refuse, "strftime_now": _strftime_now}
        try:
            if len(source) > MAX_SOURCE_CHARS:
                raise TemplateRefuses("it is no template but a book")
            with _bounded():
                self._template = environment.from_string(source)
            self.render(("user",))
        except (*_CANNOT, TemplateRefuses) as error:
            raise TemplateUnusable(f"{type(error).__name__}: {error}"[:300]) from error
        self.takes_history = self._takes("user", "assistant", "user")
        """Else the model is told of the last question alone."""
        self.takes_system = self._takes("system", "user", *(("assistant", "user") if self.takes_history else ()))
        """Else what the owner wants stands before the first question."""

    def render(self, roles: tuple[str, ...]) -> str:
        """The template with a placeholder for each message: `\\ue000`, the message's number, `\\ue001`.

        Raises TemplateRefuses.
        """
        messages = [{"role": role, "content": f"\ue000{i}\ue001"} for i, role in enumerate(roles)]
        try:
            with _bounded():
                text = self._template.render(messages=messages, add_generation_prompt=True)
        except _CANNOT as error:
            raise TemplateRefuses(f"the chat template refuses it: {error}"[:300]) from error
        places = [text.find(message["content"]) for message in messages]
        if -1 in places or places != sorted(places) or text.count("\ue000") != len(roles):
            raise TemplateRefuses("the chat template leaves out or repeats a message")
        return text

    def _takes(self, *roles: str) -> bool:
        try:
            self.render(roles)
        except TemplateRefuses:
            return False
        return True


class _Generation(Extension):
    """`{% generation %}` marks answers for training; to read them it means nothing."""

    tags = {"generation"}  # noqa: RUF012 -- as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """What is inside, as it is."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Raise ValueError or MemoryError in what takes too long or too much. Where the system cannot, it may."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = address_space_bytes() + RENDER_BYTES
    old = signal.signal(signal.SIGALRM, _too_long)
    if before[0] == resource.RLIM_INFINITY or limit < before[0]:
        resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    signal.setitimer(signal.ITIMER_REAL, RENDER_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGALRM, old)


def _too_long(_number: int, _frame: FrameType | None) -> NoReturn:
    raise ValueError(f"the chat template takes longer than {RENDER_S:g} s")


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
