"""What the self-test found, in people and words: nobody counts tokens."""

from __future__ import annotations

from datetime import datetime
from html import escape

from appliance.operate.self_test import SelfTestState, Verdict
from ui.words.messages import Language, say, size_text

_WORDS_A_TOKEN = 0.75
"""Of English."""
_CHARACTERS_A_TOKEN = 1.5
"""Of Chinese."""
_LITTLE_MEMORY_BYTES = 300 * 10**6
_LITTLE_DISK_BYTES = 3 * 10**9


def promise(language: Language, verdict: Verdict) -> str:
    """The sentence the owner can rely on."""
    key = "test_promise" if verdict.people > 1 else "test_one" if verdict.people else "test_nobody"
    speed = _rounded(verdict.each_per_s * (_CHARACTERS_A_TOKEN if language == "zh" else _WORDS_A_TOKEN))
    return say(language, key, people=verdict.people, speed=speed, more=verdict.with_waiting)


def verdict_html(language: Language, verdict: Verdict, *, is_of_this_model: bool) -> str:
    """The promise and what belongs to it."""
    day = datetime.fromtimestamp(verdict.at).astimezone().strftime("%Y-%m-%d")
    key = "test_of_threads" if verdict.n_threads else "test_of"
    lines = [say(language, key, model=verdict.model_name, day=day, threads=verdict.n_threads)]
    memory, disk = size_text(verdict.free_memory_bytes), size_text(verdict.free_disk_bytes)
    lines.append(say(language, "test_room", memory=memory, disk=disk))
    if verdict.free_memory_bytes < _LITTLE_MEMORY_BYTES:
        lines.append(say(language, "test_little_memory"))
    if verdict.free_disk_bytes < _LITTLE_DISK_BYTES:
        lines.append(say(language, "test_little_disk"))
    details = "".join(f"<p>{escape(line)}</p>" for line in lines)
    outdated = "" if is_of_this_model else f'<p role="alert">{escape(say(language, "test_outdated"))}</p>'
    return f'{outdated}<p class="promise"><strong>{escape(promise(language, verdict))}</strong></p>{details}'


def state_html(language: Language, state: SelfTestState) -> str:
    """How far it is; "" when nothing runs and nothing went wrong."""
    if state.is_running:
        label = escape(say(language, f"test_{state.phase}"))
        tried = escape(say(language, "test_trying", n_people=state.n_people)) if state.n_people else ""
        return f'<p>{label} {tried}</p><progress value="{state.share:.2f}" max="1" aria-label="{label}"></progress>'
    if state.phase in ("stopped", "failed"):
        return f'<p role="alert">{escape(say(language, f"test_{state.phase}"))}</p>'
    return ""


def _rounded(speed: float) -> str:
    """Whole from three on; nobody is promised a tenth of a word."""
    return f"{speed:.0f}" if speed >= 3 else f"{speed:.1f}"
