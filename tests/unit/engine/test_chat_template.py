"""Templates as published models have them, in our words: what each takes, and that none takes the engine's time."""

from __future__ import annotations

import resource
import time

import pytest

from appliance.engine.chat_template import RENDER_S, ChatTemplate, TemplateRefuses, TemplateUnusable
from appliance.engine.echo_backend import ByteVocabulary
from appliance.engine.prompt import PromptBuilder
from appliance.engine.request import Message

NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "\x02{{ 'model' if message['role'] == 'assistant' else message['role'] }}:{{ message['content'] | trim }}\x03"
    "{% endfor %}{% if add_generation_prompt %}\x02model:{% endif %}"
)
SYSTEM_IN_THE_LAST_QUESTION = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set told = messages[0]['content'] %}"
    "{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}{% if m['role'] == 'user' %}[I]{% if loop.last and told is defined %}{{ told }} {% endif %}"
    "{{ m['content'] }}[/I]{% elif m['role'] == 'assistant' %}{{ m['content'] }}\x03"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
WITH_A_DATE = (
    "\x02s{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% endif %}\x03"
    "{% for m in messages %}\x02{{ m.role }}:{{ m.content | trim }}\x03{% endfor %}"
    "{% if add_generation_prompt %}\x02assistant:{% endif %}"
)
MARKED_FOR_TRAINING = (
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% if m.role == 'assistant' %}{% generation %}\x02a{{ m.content }}\x03{% endgeneration %}"
    "{% else %}\x02{{ m.role[0] }}{{ m.content }}\x03{% endif %}{% endfor %}\x02a"
)
WITH_A_MAKER = (
    "{% if messages[0]['role'] != 'system' %}\x02sYou were made by somebody.\x03{% endif %}"
    "{% for m in messages %}\x02{{ m['role'][0] }}{{ m['content'] }}\x03{% endfor %}\x02a"
)
ONE_QUESTION = (
    "{% if messages | length > 1 %}{{ raise_exception('one message only') }}{% endif %}<{{ messages[0]['content'] }}>"
)
TEMPLATES = {
    "no system": NO_SYSTEM,
    "system in the last question": SYSTEM_IN_THE_LAST_QUESTION,
    "date": WITH_A_DATE,
    "training marks": MARKED_FOR_TRAINING,
    "maker": WITH_A_MAKER,
    "one question": ONE_QUESTION,
}
CONVERSATION = [
    Message("system", "be kind"),
    Message("user", "one"),
    Message("assistant", "two"),
    Message("user", "three"),
]


def builder(template: str) -> PromptBuilder:
    limits = {"n_ctx_seq": 600, "max_answer_tokens": 100, "max_input_tokens": 200}
    return PromptBuilder(ByteVocabulary(), template, {"bos_token": ""}, **limits)


def read(token_ids: list[int]) -> str:
    return "".join({256: "<", 257: ">"}.get(i, chr(i)) for i in token_ids)


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_every_template_that_takes_a_question_takes_a_conversation_with_the_owners_words(template):
    text = read(builder(template).build(CONVERSATION).token_ids)
    assert text.count("be kind") == 1
    assert text.index("be kind") < text.index("three")
    if template is not ONE_QUESTION:
        assert text.index("one") < text.index("two") < text.index("three")


def test_where_no_system_message_is_taken_the_words_stand_before_the_first_question():
    prompt = builder(NO_SYSTEM).build(CONVERSATION)
    assert read(prompt.token_ids) == "<user:be kind\n\none><model:two><user:three><model:"
    assert read(prompt.token_ids[: prompt.n_shared]) == "<user:be kind\n\n", "the same for everybody"
    assert read(builder(NO_SYSTEM).build(CONVERSATION[1:]).token_ids) == "<user:one><model:two><user:three><model:"


@pytest.mark.parametrize("turns", [CONVERSATION[1:2], CONVERSATION[1:]])
def test_without_words_of_the_owner_nothing_that_a_person_says_counts_as_everybodys(turns):
    prompt = builder(NO_SYSTEM).build([Message("system", ""), *turns])
    assert read(prompt.token_ids[: prompt.n_shared]) == "<user:"


def test_a_system_prompt_that_is_empty_brings_no_words_of_the_models_maker():
    assert "somebody" not in read(builder(WITH_A_MAKER).build([Message("system", ""), Message("user", "q")]).token_ids)


def test_a_folded_system_prompt_stays_when_old_turns_go():
    turns = [Message(role, "x" * 60) for _ in range(20) for role in ("user", "assistant")]
    prompt = builder(NO_SYSTEM).build([CONVERSATION[0], *turns, Message("user", "last")])
    text = read(prompt.token_ids)
    assert text.startswith("<user:be kind\n\n")
    assert prompt.n_dropped_messages > 0
    assert len(prompt.token_ids) <= 500
    assert text.endswith("<user:last><model:")


def test_a_long_question_is_cut_and_the_owners_words_are_not():
    prompt = builder(NO_SYSTEM).build([CONVERSATION[0], Message("user", "q" * 500)])
    assert prompt.input_cut
    assert read(prompt.token_ids) == f"<user:be kind\n\n{'q' * 200}><model:"


def test_an_answer_is_gone_on_with_under_a_folded_system_prompt():
    prompt = builder(NO_SYSTEM).build(CONVERSATION[:3])
    assert read(prompt.token_ids) == "<user:be kind\n\none><model:two"


ENDLESS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a long text": "{{ 'x' * 10**9 }}",
    "a longer text": "{% set x = 'x' * 10**10 %}",
    "doubling": "{% set ns = namespace(x='xxxxxxxx') %}{% for _ in range(60) %}"
    "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "a large number": "{% set x = 9 ** (9 ** 9) %}",
    "recursion": "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    "a large list": "{% set x = [0] * 10**9 %}",
    "formatting": "{{ '%1000000000d' % 1 }}",
    "joining": "{{ range(99999) | map('string') | join('x' * 99999) }}",
}
PLAIN = "{% for m in messages %}<{{ m['content'] }}>{% endfor %}"


@pytest.mark.parametrize("evil", ENDLESS.values(), ids=ENDLESS)
def test_a_template_without_end_is_refused_in_seconds_and_takes_no_memory(evil):
    limits = resource.getrlimit(resource.RLIMIT_AS)
    began = time.monotonic()
    with pytest.raises(TemplateUnusable):
        ChatTemplate(evil + PLAIN, {})
    assert time.monotonic() - began < 5
    assert resource.getrlimit(resource.RLIMIT_AS) == limits


def test_a_template_that_turns_bad_later_fails_that_conversation_alone():
    late = ChatTemplate("{% if messages | length > 4 %}" + ENDLESS["nested loops"] + "{% endif %}" + PLAIN, {})
    began = time.monotonic()
    with pytest.raises(TemplateRefuses):
        late.render(("user", "assistant") * 3)
    assert time.monotonic() - began < 2 * RENDER_S + 1
    assert late.render(("user",))


def test_a_template_as_long_as_a_book_is_refused():
    with pytest.raises(TemplateUnusable):
        ChatTemplate("{# " + "x" * 300_000 + " #}" + PLAIN, {})
