"""What is wrong with a file of the owner's, in the reader's language: with its rules, or with the disk it lies on."""

from __future__ import annotations

import errno
from typing import Final

from appliance.settings.owner_file import BadRules
from ui.words.admin_messages import tell
from ui.words.messages import Language

_REASONS: Final[dict[str, str]] = {
    "it matches an empty text, and so every one": "它与空文本相符，因此与任何文本都相符",
    "a word is empty": "有一个词是空的",
    "missing )": "缺少 )",
    "missing ]": "缺少 ]",
    "unexpected )": "多余的 )",
    "trailing \\": "末尾的 \\",
    "no argument for repetition operator": "重复符号前没有内容",
    "invalid repetition size": "重复次数无效",
    "bad repetition operator": "重复符号无效",
    "invalid escape sequence": "转义无效",
    "invalid character class": "字符类无效",
    "invalid character class range": "字符范围无效",
    "invalid perl operator": "不支持的符号",
    "invalid named capture group": "命名分组无效",
    "pattern too large - compile failed": "模式过大",
}
"""Why a pattern cannot be used: what text_matching.py says, and RE2."""
_DISK: Final = {
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.EACCES: "disk_denied",
    errno.EPERM: "disk_denied",
    errno.EROFS: "disk_denied",
}


def rules_problem(language: Language, error: BadRules, *, is_one: bool = False) -> str:
    """What is wrong with rules, and where. `is_one`: with the one rule in hand, which has no line."""
    values = dict(error.values)
    if "reason" in values:
        values["reason"] = _reason(language, str(values["reason"]))
    if values.get("name") == "answer":
        values["name"] = tell(language, "answer")
    what, place = tell(language, f"bad_{error.rule}", **values), error.place
    if is_one or place is None or not (place.line or place.number):
        return what
    return tell(language, "at_line" if place.line else "at_rule", n=place.line or place.number, what=what)


def disk_problem(language: Language, error: OSError) -> str:
    """Why a file could not be written. What is left as it was goes without saying: it is said around it."""
    key = _DISK.get(error.errno or 0, "disk_other")
    name = errno.errorcode.get(error.errno or 0, type(error).__name__)
    return tell(language, "disk", problem=tell(language, key, name=name))


def _reason(language: Language, reason: str) -> str:
    what, colon, which = reason.partition(": ")
    known = _REASONS.get(what, what) if language == "zh" else what
    return f"{known}{'：' if language == 'zh' and colon else colon}{which}"
