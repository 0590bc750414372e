"""What the load clients ask: seeded, and nothing twice in a run. Servers remember: an old question is a cheap one."""

from __future__ import annotations

import random
from collections.abc import Callable

SYSTEM_PROMPT = "你是公司内部的知识助手。请用简洁、准确的中文回答同事的问题；不知道就直说不知道，不要编造。"
"""About 35 tokens of the Qwen tokenizer, as in the first measurements this project started from."""

_TOPICS = (
    "报销流程 年假规定 会议室预订 VPN设置 打印机故障 周报模板 SQL去重语句 Excel透视表 客户回访话术 合同编号规则 "
    "新员工入职 邮箱扩容 服务器重启 Python读取CSV 项目排期 绩效考核 出差补贴 门禁卡 发票抬头 数据备份"
)
_ASKS = (
    "请问{}怎么办理？",
    "帮我写一段关于{}的通知，五十字以内。",
    "{}有哪些注意事项？请列三条。",
    "用一句话解释{}。",
    "我在处理{}时遇到了问题，应该先检查什么？",
)
# Common words: one token each in every vocabulary we meet, so that a text can be given a length.
_WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work number night point home water room mother area "
    "money story fact month lot right study book eye job word business issue side kind head house service friend "
    "father power hour game line end member law car city name team minute idea body back parent face others level "
    "office door health person art war history party result change morning reason research girl guy moment air teacher"
)


class Questions:
    """One run's questions. The seed belongs to the run, so that two runs ask different things."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._topics, self._words = _TOPICS.split(), _WORDS.split()
        self._given: set[str] = set()

    def short(self) -> str:
        """An everyday question in Chinese, about 22 tokens."""
        return self._fresh(self._short)

    def words(self, n_words: int) -> str:
        """A text of `n_words` English words: about as many tokens, and equally many each time. Few words run out."""
        if n_words < 1:
            raise ValueError(f"a text of {n_words} words")
        return self._fresh(lambda: " ".join(self._random.choices(self._words, k=n_words)))

    def _short(self) -> str:
        text = self._random.choice(_ASKS).format(self._random.choice(self._topics))
        return f"{text}（编号{self._random.randint(1000, 9999)}）"

    def _fresh(self, make: Callable[[], str]) -> str:
        while (text := make()) in self._given:
            pass
        self._given.add(text)
        return text
