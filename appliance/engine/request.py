"""What the web side asks of the engine and what comes back: frozen values that cross the process border."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

Role = Literal["system", "user", "assistant"]


class FinishReason(StrEnum):
    """Why an answer ended."""

    STOP = "stop"
    """An end-of-generation token or a stop string."""
    LENGTH = "length"
    """`max_tokens` or the context was used up: the answer can be continued."""
    ABORT = "abort"
    """Stopped by its reader, or nobody was left to read it."""
    ERROR = "error"
    """The engine failed; the text so far is valid."""


@dataclass(frozen=True)
class Message:
    """One message of a conversation.

    An answer of ours carries the `token_ids` that were generated (without the end token): they are
    spliced into the next prompt as they are, because the text tokenised again need not give them back.
    """

    role: Role
    text: str
    token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are drawn; None takes the model's own value. Order of the steps as in llama.cpp's chain."""

    temperature: float | None = None
    """0 picks the most likely token."""
    top_k: int | None = None
    """0 keeps all candidates."""
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    """Divides the positive logits of recent tokens; 1 is off."""
    seed: int | None = None

    def over(self, below: SamplingParams) -> SamplingParams:
        """These values, and those of `below` where one is None."""
        return replace(below, **{name: value for name, value in vars(self).items() if value is not None})


@dataclass(frozen=True)
class Request:
    """One question to the engine: the whole conversation, oldest message first.

    The last message is the user's, or an assistant's that is to be continued.
    """

    request_id: str
    messages: tuple[Message, ...]
    max_tokens: int
    """Upper bound of tokens to generate; the engine lowers it to its own `max_answer_tokens`."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    """Strings that end the answer and are never shown."""
    person: str = ""
    """Opaque id: whose question it is. Kept KV state never crosses it."""
    conversation: str = ""
    """Opaque id of the conversation within the person's; empty keeps no KV state for a next turn."""
    refuse_long_input: bool = False
    """Refuse a last message over `max_input_tokens` instead of cutting it."""
    short_history: bool = False
    """Where nothing of the conversation is computed already, read its newest part only. Where something is, going on
    from it is cheaper than reading any part anew."""
    model: str = ""
    """Fingerprint of the model whose tokens the messages' ids are."""
    own_words: str = ""
    """What of the system prompt is this person's own: looked through like a question, KV state shared with nobody."""

    def for_model(self, fingerprint: str) -> Request:
        """The same for the model of that fingerprint: another one's token ids mean nothing to it, the texts do."""
        if self.model == fingerprint or all(message.token_ids is None for message in self.messages):
            return self
        texts = tuple(replace(message, token_ids=None) for message in self.messages)
        return replace(self, messages=texts, model=fingerprint)


@dataclass(frozen=True)
class Delta:
    """New text of an answer, whole characters only, with the tokens it is made of."""

    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class Started:
    """The prompt is built; the request is being computed or waits for a slot. Comes again from another engine."""

    n_prompt: int
    """Tokens of the rendered prompt."""
    n_dropped_messages: int
    """Oldest messages after the system prompt that did not fit and were left out."""
    input_cut: bool
    """The last message was longer than `max_input_tokens` and was cut."""
    history_shortened: bool = False
    """Some of the messages were left out because `Request.short_history` asked for it."""


@dataclass(frozen=True)
class Timings:
    """How long the parts of an answer took in the engine, in seconds; 0 for a part it never came to."""

    waited_s: float = 0.0
    """Without a slot, until the first one."""
    first_token_s: float = 0.0
    """From there to the first token: the prompt was read."""
    decode_s: float = 0.0
    """From the first token to the last."""


@dataclass(frozen=True)
class Finished:
    """The end of an answer."""

    reason: FinishReason
    n_prompt: int
    n_cached: int
    """Prompt tokens whose KV state was reused."""
    n_decoded: int
    error: str = ""
    """For ERROR: the code of an appliance error (see errors.py), never text of a conversation."""
    timings: Timings = Timings()


Update = Delta | Started | Finished


@dataclass(frozen=True)
class Running:
    """How far an answer is that holds a slot."""

    number: int
    """Counts the requests, in the order they were asked."""
    n_decoded: int


@dataclass(frozen=True)
class EngineInfo:
    """What the engine says of itself once it is ready."""

    model_name: str
    n_slots: int
    n_ctx_seq: int
    """Cells a conversation may fill, prompt and answer together."""
    n_vocab: int
    pid: int
    load_s: float
    padded_remainders: frozenset[int] = frozenset()
    """What batch_shape.py measured."""
    fingerprint: str = ""
    """Names the model file; other files, other answers."""
    instructions: str = ""
    """See `Backend`."""
    kernels: str = ""
    """Which of llama.cpp's kernels compute, as the owner reads it: `AVX-512 (zen4)`."""
