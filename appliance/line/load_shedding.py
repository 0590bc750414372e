"""What gives way when too many ask, and in which order: answers get shorter, then histories; then only what costs
nothing is answered; then nobody new is taken. The ladder is climbed and left one level at a time.

It is climbed while somebody who asks now would wait too long, or while too many engine requests fail. Those who were
sent away a moment ago count as waiting: they will be back, and without them the ladder would go up and down for as long
as too many ask.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Final

from appliance.engine.request import Request, Running
from appliance.line.forecast import Forecast

OVER_S: Final = 2.0
"""How long a wait must be over the next level's threshold before that level is climbed."""
FAILING_S: Final = 10.0
"""The same for failures: what the last level did must have time to show."""
CALM_S: Final = 10.0
"""How long the wait must be under half of a level's threshold, and nothing fail, before it is left."""
FAILURE_WINDOW_S: Final = 60.0
FAILURE_SHARE: Final = 0.05
MIN_REQUESTS: Final = 20
"""Fewer requests in the window say nothing."""
COME_BACK_S: Final = 60.0
"""Who was sent away counts as waiting for so long."""
_N_SENT_AWAY = 200
_N_OUTCOMES = 5000
_FRESH_S = 0.4
"""How long a forecast is used before it is made anew."""


class LoadLevel(IntEnum):
    """Each includes the ones below it."""

    NORMAL = 0
    SHORT_ANSWERS = 1
    SHORT_HISTORY = 2
    SAVED_ONLY = 3
    BUSY = 4


class Ladder:
    """Which level. Pure: `update` is told the time, in seconds."""

    def __init__(self, thresholds_s: Sequence[float]) -> None:
        """The wait from which each level from SHORT_ANSWERS up is climbed; 0 leaves that level out."""
        self.use(thresholds_s)
        self.level = LoadLevel.NORMAL
        self.is_failing = False
        self.n_moves = 0
        self._over_since: float | None = None
        self._failing_since: float | None = None
        self._calm_since: float | None = None

    def use(self, thresholds_s: Sequence[float]) -> None:
        """Other thresholds. A level that is left out now is left like any other, by way of the ones that are there."""
        self._thresholds = {LoadLevel(i): s for i, s in enumerate(thresholds_s, 1) if s > 0}

    @property
    def lowest_s(self) -> float:
        """The threshold of the first level there is; 0 where there is none."""
        return min(self._thresholds.values(), default=0.0)

    def update(self, now: float, wait_s: float, *, failing: bool) -> LoadLevel:
        """Climb or leave one level if it is time."""
        self.is_failing = failing
        above = min((level for level in self._thresholds if level > self.level), default=None)
        over = above is not None and wait_s > self._thresholds[above]
        calm = self.level and not failing and wait_s < self._thresholds.get(self.level, float("inf")) / 2
        self._over_since = _since(self._over_since, now, over)
        self._failing_since = _since(self._failing_since, now, failing)
        self._calm_since = _since(self._calm_since, now, bool(calm))
        if above is not None and (
            _is_past(self._over_since, now, OVER_S) or _is_past(self._failing_since, now, FAILING_S)
        ):
            self._move(above, now)
        elif _is_past(self._calm_since, now, CALM_S):
            self._move(max((level for level in self._thresholds if level < self.level), default=LoadLevel.NORMAL), now)
        return self.level

    def _move(self, level: LoadLevel, now: float) -> None:
        self.level = level
        self.n_moves += 1
        self._over_since = self._calm_since = None
        self._failing_since = now if self.is_failing else None


class LoadShedding:
    """The ladder with what it looks at. Owned by the event loop's thread; the clock is in seconds."""

    def __init__(
        self,
        thresholds_s: Sequence[float],
        forecast: Forecast,
        clock: Callable[[], float],
        running: Callable[[], Sequence[Running]],
        n_waiting: Callable[[], int],
        short_answer_tokens: int = 128,
    ) -> None:
        """`running`: who holds a slot. `n_waiting`: questions without one, wherever they wait."""
        self._short_answer_tokens = short_answer_tokens
        self._ladder = Ladder(thresholds_s)
        self._forecast = forecast
        self._clock = clock
        self._running = running
        self._n_waiting = n_waiting
        self._sent_away: OrderedDict[str, float] = OrderedDict()
        self._outcomes: deque[tuple[float, bool]] = deque(maxlen=_N_OUTCOMES)
        self._turns: list[float] = []
        self._made_at = float("-inf")

    @property
    def level(self) -> LoadLevel:
        """Where we are."""
        return self._ladder.level

    @property
    def n_moves(self) -> int:
        """How often a level was climbed or left."""
        return self._ladder.n_moves

    def use(self, thresholds_s: Sequence[float], short_answer_tokens: int) -> None:
        """Other thresholds, and another longest answer while answers are shorter."""
        self._ladder.use(thresholds_s)
        self._short_answer_tokens = short_answer_tokens

    # -- what the gateway asks -------------------------------------------------------------------------------

    def wait_s(self, ahead: int | None = None) -> float:
        """Seconds until the first words of a question with so many before it; None: of one that is asked now."""
        return self._turn_s(self._n_waiting() if ahead is None else ahead) + self._forecast.first_token_s

    def takes_for_model(self) -> bool:
        """Whether a new question may go to the model. On the upper levels only while its line is short, so that it
        never idles; while requests fail, one at a time, to find out whether they still do."""
        if self.level < LoadLevel.SAVED_ONLY:
            return True
        if self._ladder.is_failing:
            return not self._running() and not self._n_waiting()
        return self._turn_s(self._n_waiting()) <= self._ladder.lowest_s / 2

    def takes_anything(self) -> bool:
        """Whether anything new may come in."""
        return self.level < LoadLevel.BUSY or self.takes_for_model()

    def relieved(self, request: Request) -> Request:
        """What the engine is asked instead while things must give way."""
        if self.level < LoadLevel.SHORT_ANSWERS:
            return request
        max_tokens = min(request.max_tokens, self._short_answer_tokens)
        return replace(request, max_tokens=max_tokens, short_history=self.level >= LoadLevel.SHORT_HISTORY)

    def retry_after_s(self) -> int:
        """Whole seconds until somebody who is sent away now is expected to be taken, after those sent away before."""
        n_before = max(0, len(self._sent_away) - 1)
        if self.level < LoadLevel.SAVED_ONLY:  # every place is taken: one is free with every slot that is handed on
            return max(1, round(self._turn_s(n_before)))
        return max(1, round(self._turn_s(self._n_waiting() + n_before) - self._ladder.lowest_s / 2))

    # -- what happens ----------------------------------------------------------------------------------------

    def sent_away(self, person: str) -> None:
        """Somebody was told to come back."""
        self._sent_away[person] = self._clock()
        self._sent_away.move_to_end(person)
        if len(self._sent_away) > _N_SENT_AWAY:
            self._sent_away.popitem(last=False)

    def taken(self, person: str) -> None:
        """Somebody was let in."""
        self._sent_away.pop(person, None)

    def request_ended(self, *, failed: bool) -> None:
        """The engine is done with a request."""
        self._outcomes.append((self._clock(), failed))

    def tick(self) -> None:
        """Twice a second: forget what is old, climb or leave a level."""
        now = self._clock()
        while self._sent_away and now - next(iter(self._sent_away.values())) >= COME_BACK_S:
            self._sent_away.popitem(last=False)
        while self._outcomes and now - self._outcomes[0][0] >= FAILURE_WINDOW_S:
            self._outcomes.popleft()
        wait_s = self._turn_s(self._n_waiting() + len(self._sent_away))
        n_failed = sum(failed for _, failed in self._outcomes)
        failing = len(self._outcomes) >= MIN_REQUESTS and n_failed > FAILURE_SHARE * len(self._outcomes)
        self._ladder.update(now, wait_s, failing=failing)

    def _turn_s(self, ahead: int) -> float:
        """Seconds until the question with so many before it gets a slot."""
        now = self._clock()
        if now - self._made_at > _FRESH_S or ahead >= len(self._turns):
            n_turns = max(ahead, self._n_waiting() + len(self._sent_away)) + 1
            longest = self._short_answer_tokens if self.level >= LoadLevel.SHORT_ANSWERS else None
            self._turns = self._forecast.turns(self._running(), n_turns, longest)
            self._made_at = now
        return self._turns[ahead]


def _since(since: float | None, now: float, holds: bool) -> float | None:
    return (now if since is None else since) if holds else None


def _is_past(since: float | None, now: float, seconds: float) -> bool:
    return since is not None and now - since >= seconds
