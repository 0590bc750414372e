"""The engine without its process: requests in, updates out, one `step()` at a time. Owned by one thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from appliance.engine.backend import Backend, DecodeFailed, NoRoom, Rows
from appliance.engine.config import EngineConfig
from appliance.engine.detokenizer import Detokenizer
from appliance.engine.prompt import BadConversation, ContextFull, PromptBuilder, SystemPromptTooLong
from appliance.engine.request import Delta, Finished, FinishReason, Request, SamplingParams, Started, Update
from appliance.engine.sampler import TokenSampler, sample
from appliance.engine.scheduler import Scheduler, Step
from appliance.engine.sequence import Sequence
from appliance.errors import InputTooLong

log = logging.getLogger(__name__)

Updates = list[tuple[str, Update]]
"""(request_id, update) in the order they happened."""

N_BATCH = 512
"""Most rows one step may evaluate."""


class CrossedSequence(AssertionError):
    """A slot holds other tokens than the conversation it belongs to. Nothing of it may be shown."""


class Engine:
    """Continuous batching over one backend."""

    def __init__(self, backend: Backend, config: EngineConfig, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._config = config
        self._clock = clock
        self._prompts = PromptBuilder(
            backend.vocabulary,
            backend.chat_template,
            backend.template_globals,
            n_ctx_seq=config.n_ctx_seq,
            max_answer_tokens=config.max_answer_tokens,
            max_input_tokens=config.max_input_tokens,
        )
        self._scheduler = Scheduler(
            n_slots=config.n_slots,
            prefill_chunk=config.prefill_chunk,
            n_batch=N_BATCH,
            max_wait_s=config.max_wait_ms / 1000,
            min_batch_size=config.min_batch_size,
        )
        self._sequences: dict[str, Sequence] = {}
        self.n_decoded_total = 0

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._sequences)

    @property
    def n_running(self) -> int:
        """Requests that hold a slot."""
        return len(self._scheduler.running)

    def waiting_ids(self) -> tuple[str, ...]:
        """Requests without a slot, in the order they will get one."""
        return tuple(s.request_id for s in self._scheduler.waiting)

    def wait_s(self) -> float:
        """Seconds the batching window is still open."""
        return self._scheduler.wait_s(self._clock())

    def submit(self, request: Request) -> Updates:
        """Take a request; a prompt that cannot be built ends it at once."""
        try:
            prompt = self._prompts.build(request.messages, refuse_long_input=request.refuse_long_input)
        except (InputTooLong, SystemPromptTooLong, ContextFull, BadConversation) as refusal:
            return [(request.request_id, Finished(FinishReason.ERROR, 0, 0, 0, refusal.code))]
        n_prompt = len(prompt.token_ids)
        sampler = TokenSampler(self._sampling(request.sampling))
        sampler.accept(prompt.token_ids)
        sequence = Sequence(
            request=request,
            token_ids=prompt.token_ids,
            n_prompt=n_prompt,
            max_tokens=min(request.max_tokens, self._config.max_answer_tokens, self._config.n_ctx_seq - n_prompt),
            sampler=sampler,
            detokenizer=Detokenizer(request.stop + self._backend.vocabulary.marker_texts),
            arrived_s=self._clock(),
        )
        self._sequences[request.request_id] = sequence
        self._scheduler.add(sequence)
        return [(request.request_id, Started(n_prompt, prompt.n_dropped_messages, prompt.input_cut))]

    def abort(self, request_id: str) -> Updates:
        """End a request now; unknown ids have already ended."""
        sequence = self._sequences.get(request_id)
        return [] if sequence is None else self._finish(sequence, FinishReason.ABORT)

    def step(self) -> Updates:
        """Place who waits, evaluate one batch, draw one token for everybody whose prompt is done."""
        for sequence in self._scheduler.admit():
            self._check_slot(sequence)
        step = self._scheduler.next_step()
        if not step.rows:
            return []
        try:
            return self._evaluate(step)
        except NoRoom:
            # One victim, never a retry loop: whoever came last has the least to lose.
            victim = max((s for s, _ in step.rows), key=_arrival)
            log.warning("no room in the KV cells with %s rows: gave up the youngest request", len(step.rows))
            return self._finish(victim, FinishReason.ERROR, error="no_room")
        except DecodeFailed as failure:
            log.error("a step failed (%s): its %s requests end", failure, len(step.rows))
            return self._give_up(step)
        except CrossedSequence:
            raise
        except Exception as failure:  # noqa: BLE001 - fail this step's requests, keep going
            # The message could hold somebody's words, its class cannot.
            log.error("a step failed (%s): its %s requests end", type(failure).__name__, len(step.rows))
            return self._give_up(step)

    def _give_up(self, step: Step) -> Updates:
        """End all requests of a step whose KV state is unknown."""
        updates: Updates = []
        for sequence, _ in step.rows:
            if sequence.slot is None:  # it ended before the failure
                continue
            self._backend.truncate(sequence.slot, 0)
            sequence.n_past = 0
            updates += self._finish(sequence, FinishReason.ERROR, error="engine_failed")
        return updates

    def _evaluate(self, step: Step) -> Updates:
        batch, drawing = [], []
        for sequence, n_tokens in step.rows:
            assert sequence.slot is not None
            ids = sequence.token_ids[sequence.n_past : sequence.n_past + n_tokens]
            complete = sequence.n_past + n_tokens == len(sequence.token_ids)
            batch.append(Rows(sequence.slot, sequence.n_past, ids, wants_logits=complete))
            if complete:
                drawing.append(sequence)
        logits = self._backend.decode(batch)
        for sequence, n_tokens in step.rows:
            sequence.n_past += n_tokens
        if not drawing:
            return []
        updates: Updates = []
        for sequence, token_id in zip(drawing, sample([s.sampler for s in drawing], logits), strict=True):
            updates += self._accept(sequence, token_id)
        return updates

    def _accept(self, sequence: Sequence, token_id: int) -> Updates:
        """Take one drawn token into the answer, or end it."""
        if self._backend.vocabulary.is_end(token_id):
            return self._finish(sequence, FinishReason.STOP)
        sequence.token_ids.append(token_id)
        sequence.unsent_ids.append(token_id)
        sequence.sampler.accept((token_id,))
        self.n_decoded_total += 1
        text = sequence.detokenizer.feed(self._backend.vocabulary.piece(token_id))
        updates = self._send(sequence, text)
        if sequence.detokenizer.stopped:
            return updates + self._finish(sequence, FinishReason.STOP)
        if sequence.n_decoded >= sequence.max_tokens:
            return updates + self._finish(sequence, FinishReason.LENGTH)
        return updates

    def _send(self, sequence: Sequence, text: str) -> Updates:
        if not text:
            return []
        ids, sequence.unsent_ids = tuple(sequence.unsent_ids), []
        return [(sequence.request_id, Delta(text, ids))]

    def _finish(self, sequence: Sequence, reason: FinishReason, error: str = "") -> Updates:
        """Free the slot, say the rest of the text and why it ended."""
        updates: Updates = []
        rest = sequence.detokenizer.finish()
        if rest or sequence.unsent_ids:
            updates.append((sequence.request_id, Delta(rest, tuple(sequence.unsent_ids))))
        if sequence.slot is not None:
            self._check_slot(sequence)
            self._backend.truncate(sequence.slot, 0)
        move = self._scheduler.remove(sequence)
        if move is not None:
            self._backend.move(*move)
        del self._sequences[sequence.request_id]
        end = Finished(reason, sequence.n_prompt, sequence.n_cached, sequence.n_decoded, error)
        return [*updates, (sequence.request_id, end)]

    def _check_slot(self, sequence: Sequence) -> None:
        """What the slot holds is what the conversation says, token by token."""
        assert sequence.slot is not None
        if self._backend.held(sequence.slot) != sequence.token_ids[: sequence.n_past]:
            raise CrossedSequence(f"slot {sequence.slot} holds other tokens than its conversation")

    def _sampling(self, asked: SamplingParams) -> SamplingParams:
        """What the request asks for, else what the owner chose, else the model's own."""
        chosen = self._backend.sampling
        for layer in (self._config.sampling, asked):
            chosen = replace(chosen, **{k: v for k, v in vars(layer).items() if v is not None})
        return chosen


def _arrival(sequence: Sequence) -> float:
    return sequence.arrived_s
