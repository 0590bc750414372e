"""What people do, drawn from a seed: who asks what, when, and in which conversation. Pure: no clock, no connection."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from bench.questions import Questions

KINDS: Final = ("closed", "morning", "turns", "paste", "repeated")
REPEATED_SHARE = 0.4
PASTE_WORDS = 550
"""About the longest message our program takes with 1,024 tokens of room and answers of up to 256."""
_N_HOT = 4
_TURN_WORDS = 22
_THINK_S = 6.0
"""Mean time between reading an answer and the next question, in the morning."""
_SHORT_THINK_S = 1.0
_PEOPLE_PER_S = 0.25
"""New people in the morning: 15 a minute."""


@dataclass(frozen=True)
class Ask:
    """One question of somebody."""

    text: str
    max_tokens: int
    """Longest answer. Answers differ in length, so that people do not stay in step."""
    wait_s: float = 0.0
    """Before it is sent: since the beginning, or since the person's last answer."""
    is_new: bool = True
    """Begins a conversation; else it goes on with the last one."""


Trace = tuple[tuple[Ask, ...], ...]
"""The questions of each person, one after another."""


class Traces:
    """Draws traces; every one asks something new. Mutable: owns its random numbers."""

    def __init__(self, seed: int, *, n_tokens: int) -> None:
        """`n_tokens` is the mean length of an answer."""
        self._random = random.Random(seed)
        self._questions = Questions(seed)
        self._n_tokens = n_tokens
        self._hot = [self._questions.short() for _ in range(_N_HOT)]

    def draw(self, kind: str, n_users: int, n_each: int) -> Trace:
        """One of KINDS. `n_each` is the number of questions, or of turns, of every person."""
        match kind:
            case "closed":
                return self.closed(n_users, n_each)
            case "morning":
                return self.morning(n_users)
            case "turns":
                return self.turns(n_users, n_each)
            case "paste":
                return self.paste(n_users, n_each)
            case "repeated":
                return self.repeated(n_users, n_each)
        raise ValueError(f"no trace is named {kind}")

    def closed(self, n_users: int, n_each: int) -> Trace:
        """Everybody asks, waits for the answer, and asks something else at once."""
        return tuple(tuple(self._ask(self._questions.short()) for _ in range(n_each)) for _ in range(n_users))

    def repeated(self, n_users: int, n_each: int) -> Trace:
        """The same, but 40 % of the questions are a few that everybody asks."""
        return tuple(tuple(self._ask(self._short_or_hot()) for _ in range(n_each)) for _ in range(n_users))

    def paste(self, n_users: int, n_each: int) -> Trace:
        """The same, but the last question of one of them is a long paste."""
        trace = self.closed(n_users, n_each)
        first = trace[0]
        return ((*first[:-1], self._ask(self._questions.words(PASTE_WORDS))), *trace[1:])

    def turns(self, n_users: int, n_turns: int) -> Trace:
        """Conversations with a short thought between the turns."""
        return tuple(
            tuple(
                self._ask(
                    self._questions.words(_TURN_WORDS),
                    wait_s=self._random.expovariate(1 / _SHORT_THINK_S),
                    is_new=turn == 0,
                )
                for turn in range(n_turns)
            )
            for _ in range(n_users)
        )

    def morning(self, n_people: int) -> Trace:
        """People come as they come (Poisson), ask one to three questions of a conversation, and think in between."""
        trace: list[tuple[Ask, ...]] = []
        came_s = 0.0
        for _ in range(n_people):
            came_s += self._random.expovariate(_PEOPLE_PER_S)
            asks = [self._ask(self._questions.short(), wait_s=came_s)]
            for _ in range(self._random.randrange(3)):
                think_s = self._random.expovariate(1 / _THINK_S)
                asks.append(self._ask(self._questions.short(), wait_s=think_s, is_new=False))
            trace.append(tuple(asks))
        return tuple(trace)

    def _short_or_hot(self) -> str:
        return self._random.choice(self._hot) if self._random.random() < REPEATED_SHARE else self._questions.short()

    def _ask(self, text: str, *, wait_s: float = 0.0, is_new: bool = True) -> Ask:
        half = self._n_tokens // 2
        return Ask(text, self._random.randint(self._n_tokens - half, self._n_tokens + half), wait_s, is_new)
