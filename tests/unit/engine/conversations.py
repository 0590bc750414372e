"""Long conversations played turn by turn against a prompt builder, with everything that must hold at every turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from appliance.engine.backend import Vocabulary
from appliance.engine.prompt import Prompt, PromptBuilder
from appliance.engine.request import Message

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HAN_150 = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳云腾致雨露结为霜金生丽水玉出昆冈" * 4


@dataclass(frozen=True)
class Played:
    """What a conversation came to."""

    n_turns: int
    n_cuts: int
    n_reused: int
    """Turns whose prompt began with the whole prompt and answer of the turn before."""


def play(
    build: Callable[[Sequence[Message]], Prompt],
    n_turns: int,
    *,
    question: Callable[[int], str],
    answer_ids: Callable[[int], tuple[int, ...]],
    system: str,
    n_prompt_max: int,
) -> Played:
    """Ask `n_turns` questions as a chat does, keeping what the engine said it kept. Asserts at every turn."""
    first = Message("system", system)
    everything: list[Message] = []
    kept: list[Message] = []
    before: list[int] = []
    n_cuts = n_reused = 0
    for turn in range(n_turns):
        asked = Message("user", question(turn))
        everything.append(asked)
        kept.append(asked)
        prompt = build([first, *kept])
        assert prompt.token_ids == build([first, *everything]).token_ids, f"turn {turn}: cut at another place"
        assert prompt.token_ids == build([first, *kept]).token_ids
        assert len(prompt.token_ids) <= n_prompt_max, f"turn {turn}: {len(prompt.token_ids)} tokens"
        n_dropped = prompt.n_dropped_messages
        assert n_dropped < len(kept), f"turn {turn}: the question itself was dropped"
        kept = kept[n_dropped:]
        assert kept[0].role == "user", f"turn {turn}: history starts with an answer"
        assert prompt.token_ids == build([first, *kept]).token_ids, f"turn {turn}: what is left is cut again"
        if n_dropped:
            n_cuts += 1
            assert len(prompt.token_ids) <= n_prompt_max // 2 or len(kept) == 1
        elif before:
            assert prompt.token_ids[: len(before)] == before, f"turn {turn}: the prefix changed without a cut"
            n_reused += 1
        ids = answer_ids(turn)
        before = [*prompt.token_ids, *ids]
        answer = Message("assistant", "", ids)
        everything.append(answer)
        kept.append(answer)
    return Played(n_turns, n_cuts, n_reused)


def builder(
    vocabulary: Vocabulary, template: str = CHATML, *, n_ctx_seq: int = 1024, answer: int = 256, max_input: int = 512
) -> PromptBuilder:
    return PromptBuilder(
        vocabulary, template, {}, n_ctx_seq=n_ctx_seq, max_answer_tokens=answer, max_input_tokens=max_input
    )
