"""Who is computed next: the order of the waiting, and the rows of every step.

Pure: no model, no clock, no input or output; times come in as arguments, in seconds of one clock.

The order of the waiting, first rule first:
 1. One share a person: whoever has nothing running comes before the second request of somebody else. Where all slots
    are taken, the newest running request of whoever has most is set aside for them, and goes on later where it was.
 2. Whoever has waited longer than the starvation limit comes before the rest, longest wait first.
 3. People in mid-conversation come before newcomers.
 4. The shorter prompt, by what is still to be computed, then whoever came first.

The order of reading, among the prompts that have a slot: the system prompt that others wait for, then one share a
person, then people in mid-conversation, then the shorter prompt. A prompt that waited twice as long as it takes to read
comes before the last two; but whoever has several requests in hand is as much more patient.
While all slots are taken and somebody without a share waits, long prompts are read by one row a step, as if they were
answers: every slot that gets free sooner is a person who gets a first word sooner. (llama.cpp evaluates one token of
everybody in one pass; a second token of anybody costs another pass over the weights.)

Slots are kept dense (0 .. n_running - 1), because llama.cpp splits a batch wherever the slot numbers have a hole and
reads all weights once more. A request gets its slot only when there is room for its prompt in the step, so that the
order can still change while it waits.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import NamedTuple

from appliance.engine.sequence import Sequence
from appliance.engine.step_cost import StepCost

_MIN_CHUNK = 16
"""Fewer prompt rows a step would pay for reading the weights without using them."""
_SAFETY = 0.85
"""Share of the longest allowed gap that a step may be planned to take."""
_SHORT_STEP_S = 0.35
_LONELY_STEP_S = 0.06
"""Where one or two prompts take many steps, they get so much of each only, or `_LONELY_SHARE` times what one answer
takes: whoever comes meanwhile is read in the next one. More of them are read sooner in longer steps."""
_LONELY_SHARE = 5.0
_N_LONELY = 2
_DECODE_SHARE = 3.0
"""A step is planned to take this many times what its running answers alone take, if that is within the gap: prompts
then get two thirds of the time, and first words leave in small lots."""
_LONG_PROMPT_S = 1.0
"""A prompt that takes longer to read is a long one."""
_PATIENCE = 2.0
"""Times its own reading time that a prompt is read after shorter ones, beyond the starvation limit, for each request
that its person has in hand."""
_STARVATION_STEPS = 8
"""The starvation limit is at least this many steps: below that everybody is starved and rule 3 is void."""


@dataclass(frozen=True)
class Rules:
    """Settings of the scheduler. Times in seconds."""

    n_slots: int = 16
    n_batch: int = 512
    max_itl_s: float = 0.5
    """Longest gap between two tokens of a running answer that prompts may cause."""
    starvation_limit_s: float = 0.15
    max_wait_s: float = 0.0
    """Batching window in front of an idle engine."""
    min_batch_size: int = 1
    """Requests that end the batching window early."""


@dataclass(frozen=True)
class Step:
    """What one step evaluates: for each sequence, in the order of the slots, how many of its pending tokens."""

    rows: tuple[tuple[Sequence, int], ...]
    n_decoding: int
    n_prompt: int


class _Turn(NamedTuple):
    """Compares as the order of reading does."""

    share: int
    is_in_line: bool
    """Not yet out of patience."""
    is_newcomer: bool
    rank: float


class Scheduler:
    """Mutable, owned by the engine's thread. `running[i]` sits in slot i."""

    def __init__(self, rules: Rules, cost: StepCost) -> None:
        self._rules = rules
        self._cost = cost
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self._n_placed = 0

    def add(self, sequence: Sequence) -> None:
        """Take a new request into the waiting list."""
        self.waiting.append(sequence)

    def window_s(self, now_s: float) -> float:
        """How long an idle engine still waits for company for the first request; never once a batch is running."""
        if self.running or not self.waiting or len(self.waiting) >= self._rules.min_batch_size:
            return 0.0
        return max(0.0, min(s.arrived_s for s in self.waiting) + self._rules.max_wait_s - now_s)

    def order(self, now_s: float) -> list[Sequence]:
        """The waiting, next one first."""
        limit_s = self._limit_s()
        shares = Counter(s.request.person for s in self.running)
        ranked: list[tuple[tuple[int, int, float], Sequence]] = []
        for sequence in sorted(self.waiting, key=attrgetter("arrived_s")):
            share = shares[sequence.request.person]
            shares[sequence.request.person] += 1
            if now_s - sequence.arrived_s > limit_s:
                ranked.append(((share, 0, sequence.arrived_s), sequence))
            else:
                ranked.append(((share, 1 if self._goes_first(sequence) else 2, sequence.n_to_compute), sequence))
        return [sequence for _, sequence in sorted(ranked, key=itemgetter(0))]

    def place_next(self, now_s: float) -> Sequence | None:
        """Give the next one that can use it a slot, while the step has room for more prompt rows and a slot is free."""
        if len(self.running) >= self._rules.n_slots:
            return None
        budget = self._prompt_budget()
        being_shared = {s.shared_ids for s in self.running if s.computes_shared}
        for sequence in self.order(now_s):
            if not sequence.n_reusable and not sequence.n_saved and sequence.shared_ids in being_shared:
                continue  # its system prompt will be ready after this step: copying beats computing it again
            turns = self._reading_turns(now_s, sequence)
            n_left_out, n_left = self._n_left_out(budget), budget
            for other in sorted(self._prompts(), key=lambda s: (turns[s], s.placed)):
                if turns[other] <= turns[sequence]:
                    n_left -= _n_read(other, n_left, budget, n_left_out)
            if not n_left:
                return None
            if not _n_read(sequence, n_left, budget, n_left_out):
                continue  # the rest of this step is left for those who come meanwhile
            self.waiting.remove(sequence)
            sequence.slot = len(self.running)
            sequence.placed = self._n_placed
            self._n_placed += 1
            self.running.append(sequence)
            return sequence
        return None

    def to_preempt(self, now_s: float) -> Sequence | None:
        """The running request that has to make room for a person who has none; None where nobody has to."""
        if len(self.running) < self._rules.n_slots or not self.waiting:
            return None
        shares = Counter(s.request.person for s in self.running)
        if shares[self.order(now_s)[0].request.person] or max(shares.values()) == 1:
            return None
        return max(self.running, key=lambda s: (shares[s.request.person], s.placed))

    def preempt(self, sequence: Sequence) -> tuple[int, int] | None:
        """Back to the waiting; returns the move that closes the hole, as `remove` does."""
        move = self.remove(sequence)
        self.waiting.append(sequence)
        return move

    def next_step(self, now_s: float) -> Step:
        """One token for everybody being answered, then prompt tokens of the others in the order of reading."""
        n_decoding = self._n_decoding()
        budget = self._prompt_budget()
        holds_up_others = n_decoding > 0 and self._somebody_waits_for_a_slot()
        counts: dict[Sequence, int] = {}
        turns = self._reading_turns(now_s)
        n_left, n_left_out = budget, self._n_left_out(budget)
        for sequence in sorted(self._prompts(), key=lambda s: (turns[s], s.placed)):
            n_chunk = _n_read(sequence, n_left, budget, n_left_out)
            if holds_up_others and self._is_long(sequence) and turns[sequence].is_in_line:
                n_chunk = min(n_chunk, 1)
            counts[sequence] = n_chunk
            n_left -= n_chunk
        rows = tuple((s, n) for s in self.running if (n := counts.get(s, 1)) > 0)
        return Step(rows, n_decoding, sum(counts.values()))

    def remove(self, sequence: Sequence) -> tuple[int, int] | None:
        """Take a request out of the lists; returns the (source, target) move that closes the hole it leaves."""
        if sequence.slot is None:
            self.waiting.remove(sequence)
            return None
        hole, sequence.slot = sequence.slot, None
        last = self.running.pop()
        if last is sequence:
            return None
        source, last.slot = last.slot, hole
        self.running[hole] = last
        assert source is not None  # running sequences have a slot
        return source, hole

    def _prompts(self) -> list[Sequence]:
        return [s for s in self.running if s.is_prefilling]

    def _n_decoding(self) -> int:
        return sum(not s.is_prefilling for s in self.running)

    def _limit_s(self) -> float:
        return max(self._rules.starvation_limit_s, _STARVATION_STEPS * self._cost.step_s)

    def _reading_turns(self, now_s: float, candidate: Sequence | None = None) -> dict[Sequence, _Turn]:
        """For everybody with a slot, and one who may get one: smaller is read sooner."""
        turns: dict[Sequence, _Turn] = {}
        shares: Counter[str] = Counter()
        n_in_hand = Counter(s.request.person for s in [*self.running, *self.waiting])
        for sequence in [*sorted(self.running, key=attrgetter("placed")), *([candidate] if candidate else [])]:
            person = sequence.request.person
            share = shares[person]
            shares[person] += 1
            reading_s = sequence.n_to_compute * self._cost.prompt_row_s
            patience_s = self._limit_s() + _PATIENCE * n_in_hand[person] * reading_s
            if sequence.computes_shared:
                turns[sequence] = _Turn(-1, False, False, 0.0)
            elif now_s - sequence.arrived_s > patience_s:
                turns[sequence] = _Turn(share, False, False, sequence.arrived_s)
            else:
                turns[sequence] = _Turn(share, True, not self._goes_first(sequence), sequence.n_to_compute)
        return turns

    def _goes_first(self, sequence: Sequence) -> bool:
        """In mid-conversation, and read within a step: a long text is nobody's next word."""
        return sequence.in_conversation and sequence.n_to_compute * self._cost.prompt_row_s <= _SHORT_STEP_S

    def _is_long(self, sequence: Sequence) -> bool:
        return sequence.n_to_compute * self._cost.prompt_row_s > _LONG_PROMPT_S

    def _somebody_waits_for_a_slot(self) -> bool:
        """Somebody who has nothing running, while everything is taken."""
        served = {s.request.person for s in self.running}
        return len(self.running) >= self._rules.n_slots and any(s.request.person not in served for s in self.waiting)

    def _n_left_out(self, budget: int) -> int:
        """Rows of this budget that are left empty rather than filled with a prompt that goes on after them."""
        n_long = sum(s.n_to_compute > budget for s in [*self._prompts(), *self.waiting])
        if not 0 < n_long <= _N_LONELY:
            return 0
        n_decoding = self._n_decoding()
        lonely_s = max(_LONELY_STEP_S, _LONELY_SHARE * self._cost.decode_s(1)) + self._cost.decode_s(n_decoding)
        return max(0, budget - max(_MIN_CHUNK, self._cost.prompt_rows_within(lonely_s, n_decoding)))

    def _prompt_budget(self) -> int:
        """Prompt rows of the next step: as many as keep it within its planned length."""
        n_decoding = self._n_decoding()
        planned_s = max(_SHORT_STEP_S, _DECODE_SHARE * self._cost.decode_s(n_decoding))
        fitting = self._cost.prompt_rows_within(min(planned_s, self._rules.max_itl_s * _SAFETY), n_decoding)
        return min(max(fitting, _MIN_CHUNK), self._rules.n_batch - n_decoding)


def _n_read(sequence: Sequence, n_left: int, budget: int, n_left_out: int) -> int:
    """Rows this prompt gets of those left of a budget, where one longer than that leaves some empty."""
    n_chunk = min(sequence.n_chunk, n_left)
    return n_chunk if sequence.n_to_compute <= budget else min(n_chunk, max(0, n_left - n_left_out))
