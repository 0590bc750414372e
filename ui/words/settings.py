"""What the settings are called on the admin page, in both languages, and in which groups they stand.

The English explanation of each is in the settings table itself. A setting that is not named here is shown under its own
name, in the last group.
"""

from __future__ import annotations

from typing import Final

from appliance.settings.schema import Settings
from ui.words.messages import Language

GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "page": ("language", "notice", "starter_questions", "presets", "own_wishes", "office_name"),
    "answers": ("system_prompt", "max_answer_tokens", "max_input_chars", "max_context_tokens"),
    "style": ("temperature", "top_p", "top_k", "repetition_penalty"),
    "people": (
        *("max_batch_size", "queue_size", "max_answers_per_person"),
        *("questions_per_minute", "questions_per_minute_and_address", "address_share"),
    ),
    "forget": ("session_ttl_s", "disconnect_grace_s", "disconnect_grace_busy_s"),
    "known": ("quick_answers", "answer_cache_scope", "answer_cache_ttl_s", "answer_cache_mb"),
    "crowd": (
        *("shorter_answers_wait_s", "short_answer_tokens", "shorter_history_wait_s"),
        *("saved_only_wait_s", "busy_wait_s"),
    ),
    "access": ("access", "keyless_here", "login_days", "admin_login_hours", "allowed_hosts"),
    "address": ("host", "port", "lan_name", "open_browser"),
    "model": (
        "model",
        "download_endpoint",
        "download_proxy",
        "reuse_kv",
        "parked_ram_mb",
        "parked_disk_mb",
        "mlock",
        "tuning_max_kl",
    ),
    "processor": ("n_threads", "engine_cores", "engine_priority", "yield_to_others"),
    "order": (
        *("look_ahead", "max_wait_ms", "min_batch_size", "max_itl_ms"),
        *("priority_session_timeout_s", "starvation_limit_ms"),
    ),
    "more": ("data_dir", "backend"),
}
LONG: Final = frozenset({"system_prompt", "notice", "starter_questions", "presets"})
"""Texts that need more than a line."""

GROUP_NAMES: Final[dict[str, tuple[str, str]]] = {
    "page": ("The chat page", "聊天页面"),
    "answers": ("What the model is told and how long it writes", "提示语与长度"),
    "style": ("How freely it writes", "写作的自由度"),
    "people": ("How many people at once", "同时使用的人数"),
    "forget": ("When things are forgotten", "何时忘记"),
    "known": ("Answers without the model", "无需模型的回答"),
    "crowd": ("When too many ask", "提问过多时"),
    "access": ("Who may come in", "谁可以进入"),
    "address": ("Address and start", "地址与启动"),
    "model": ("Model and memory", "模型与内存"),
    "processor": ("Processor", "处理器"),
    "order": ("Whose turn it is", "回答的先后"),
    "more": ("More", "其他"),
}

# English name, Chinese name, Chinese explanation.
_WORDS: Final[dict[str, tuple[str, str, str]]] = {
    "language": ("Language of the page", "页面语言", "auto：跟随各自浏览器的语言。"),
    "notice": ("Notice to everybody", "公告", "显示在聊天页面顶部的一句话；留空则不显示。"),
    "starter_questions": (
        "Questions to start with",
        "开始时的问题",
        "空白页面上的问题，用 | 分隔；留空则使用自带的问题。",
    ),
    "presets": (
        "Tasks on the empty page",
        "空白页面上的任务",
        "用 | 分隔：weekly、sql、translate、explain、titles，或自定义的“名称：开头”；留空则为这五个。",
    ),
    "own_wishes": (
        "People may have settings of their own",
        "允许使用“我的设置”",
        "同事可以写自己的要求（在提示语之后），选择创造性和较短的回答；保存在各自的浏览器中。",
    ),
    "office_name": ("Name of the office", "办公室名称", "快捷回答中的 {office_name} 会换成它。"),
    "system_prompt": ("What the model is told first", "给模型的提示语", "每次对话之前告诉模型的话。"),
    "max_answer_tokens": ("Longest answer", "最长的回答", "上下文中会为它留出同样大的空间。"),
    "max_input_chars": ("Longest message", "最长的消息", "超出的部分会被截去。"),
    "max_context_tokens": ("Room of a conversation", "对话的空间", "一次对话的问题和回答合计的长度。"),
    "temperature": ("Temperature", "温度", "0：总选最可能的词；留空：用模型自己的值。"),
    "top_p": ("Top p", "Top p", "从最可能的词中按这个比例抽取；留空：用模型自己的值。"),
    "top_k": ("Top k", "Top k", "从多少个最可能的词中抽取；0：全部；留空：用模型自己的值。"),
    "repetition_penalty": ("Repetition penalty", "重复惩罚", "大于 1 时较少重复；留空：用模型自己的值。"),
    "max_batch_size": ("Answers at the same time", "同时回答的数量", "同时写出的回答数。"),
    "queue_size": ("Questions that may wait", "可以排队的问题", "正在处理的之外，还可以有多少个问题等待。"),
    "max_answers_per_person": (
        *("Answers of one person at once", "每人同时的回答"),
        "一个浏览器可以同时进行的回答数；每个占用它六个连接中的一个。",
    ),
    "questions_per_minute": ("Questions a minute", "每分钟的问题", "每人或每个 API 密钥每分钟的问题数；0：不限。"),
    "questions_per_minute_and_address": (
        *("Questions a minute from one address", "每个地址每分钟的问题"),
        "同一地址后面的所有人每分钟的问题数；0：不限。",
    ),
    "address_share": (
        *("Share of one address, in percent", "每个地址的处理时间上限（百分比）"),
        "同一地址后面的所有人长期可占用网页进程的处理时间（以一个核心计），阅读回答不计；超出的请求会等待。0：不限。",
    ),
    "keyless_here": (
        "Programs on this PC need no key",
        "本机程序无需密钥",
        "access = open 时，本机上的程序访问 /v1 和 /metrics 不需要密钥；经本机代理或隧道转发的请求同样如此。",
    ),
    "session_ttl_s": ("Unused conversations are kept", "对话保留时间", "无人使用的对话在服务器上保留多久。"),
    "disconnect_grace_s": ("Answer without a reader", "无人阅读的回答", "没有读者的回答还会继续写多久。"),
    "disconnect_grace_busy_s": ("The same while others wait", "有人等待时", "有其他人等待时，无人阅读的回答继续多久。"),
    "quick_answers": ("Quick answers", "快捷回答", "一些问题按规则回答，不使用模型。"),
    "answer_cache_scope": (
        *("Saved answers", "已保存的回答"),
        "为提出相同问题的人保存哪些回答：off 不保存，first 仅对话的第一个问题，all 全部。",
    ),
    "answer_cache_ttl_s": ("A saved answer is given for", "保存时间", "已保存的回答使用多久。"),
    "answer_cache_mb": ("Disk space for saved answers", "保存回答的磁盘空间", "0：不保存。"),
    "shorter_answers_wait_s": (
        "Shorter answers from",
        "开始缩短回答",
        "预计等待达到多久时缩短回答；0：从不；另外三个等待时间同理。",
    ),
    "short_answer_tokens": ("Longest answer then", "此时最长的回答", "缩短期间回答的最大长度。"),
    "shorter_history_wait_s": ("Less history from", "开始减少历史", "预计等待达到多久时，长对话中重新阅读的部分减少。"),
    "saved_only_wait_s": (
        "Only saved answers from",
        "只给已保存的回答",
        "预计等待达到多久时，只提供已保存的回答和快捷回答。",
    ),
    "busy_wait_s": ("Nobody new from", "不再接受新问题", "预计等待达到多久时，不再接受新的问题。"),
    "access": ("Who may chat", "谁可以聊天", "open：能打开网址的所有人；passcode：知道口令的人。"),
    "login_days": ("A login lasts", "登录有效期", "用口令登录后的有效时间。"),
    "admin_login_hours": ("A login of the admin lasts", "管理员登录有效期", "管理员登录后的有效时间。"),
    "allowed_hosts": (
        *("Further names of this PC", "这台电脑的其他名称"),
        "例如 chat.example, 10.0.0.5：用于代理之后或域中。",
    ),
    "host": ("Address to listen on", "监听地址", "127.0.0.1：同事无法访问。"),
    "port": ("Port", "端口", "监听的端口；0：首次启动时选一个空闲的，以后不变。"),
    "lan_name": (
        "Name on the office network",
        "办公网络中的名称",
        "office-chat 即 office-chat.local（mDNS）；留空则没有。",
    ),
    "open_browser": ("Open the page on this PC", "在本机打开页面", "准备好后在这台电脑上打开页面。"),
    "model": (
        "Model file",
        "模型文件",
        "回答问题的 GGUF 文件；留空：在此页面选择的，否则用 models 文件夹中最大的或自带的小模型。",
    ),
    "download_endpoint": ("Where models are downloaded from", "模型下载地址", "例如镜像站的地址；留空：Hugging Face。"),
    "download_proxy": ("Proxy for downloads", "下载代理", "例如 http://proxy.example:3128；留空：不使用。"),
    "reuse_kv": ("Keep what was computed", "保留计算结果", "为下一个问题保留对话的计算结果。"),
    "parked_ram_mb": ("Memory for that", "所用内存", "保留计算结果使用的内存。"),
    "parked_disk_mb": ("Disk space for that", "所用磁盘空间", "内存之外使用的磁盘空间；0：不使用。"),
    "mlock": ("Never swap the model out", "模型常驻内存", "模型始终留在内存中。"),
    "tuning_max_kl": (
        "What tuning may lose",
        "调优允许的损失",
        "与模型原文件的平均 KL 散度；尚未用 Qwen 的原始权重验证。",
    ),
    "n_threads": ("Threads", "线程数", "引擎的线程数；0：自检测得的最佳值，未自检时为物理核心数。"),
    "engine_cores": ("Cores of the engine", "引擎使用的核心", "例如 0,2-3；留空：全部。"),
    "engine_priority": ("Priority", "优先级", "realtime 需要 engine_cores 为其他程序留下一个核心。"),
    "yield_to_others": ("Step back for other programs", "为其他程序让路", "这台电脑上其他程序忙碌时，引擎让出处理器。"),
    "look_ahead": (
        "Questions to put in order",
        "预先排序的问题",
        "交给引擎排序的等待问题数；留空：与同时回答的数量相同。",
    ),
    "max_wait_ms": ("Wait for company", "等待更多问题", "空闲的引擎开始前等待更多问题的时间。"),
    "min_batch_size": ("Company that is enough", "足够的问题数", "达到这么多问题就不再等待。"),
    "max_itl_ms": ("Longest pause", "最长停顿", "别人的问题可以让正在写的回答停顿多久。"),
    "priority_session_timeout_s": ("In mid-conversation for", "视为对话中", "回答之后多久内，提问者仍算在对话中。"),
    "starvation_limit_ms": (
        "Waited long enough",
        "等待上限",
        "等待超过此时间的人优先；实际值不会短于引擎运行几步的时间。",
    ),
    "data_dir": ("Data folder", "数据文件夹", "存放模型、日志和设置文件的文件夹；留空：系统默认位置。"),
    "backend": ("Engine", "引擎", "llama，或用于测试的 echo：重复问题。"),
}

UNITS: Final[dict[str, str]] = {
    "s": "秒",
    "ms": "毫秒",
    "days": "天",
    "hours": "小时",
    "tokens": "token",
    "percent": "%",
    "characters": "字",
    "questions": "个问题",
    "MB": "MB",
    "nats": "nat",
}


def grouped() -> dict[str, list[str]]:
    """The settings by group; those that are in none stand in the last."""
    groups = {name: [key for key in keys if key in Settings.model_fields] for name, keys in GROUPS.items()}
    named = {key for keys in groups.values() for key in keys}
    groups["more"] += [key for key in Settings.model_fields if key not in named]
    return groups


def group_name(language: Language, group: str) -> str:
    """What a group is called."""
    return GROUP_NAMES[group][language == "zh"]


def name_of(language: Language, key: str) -> str:
    """What a setting is called."""
    return _WORDS[key][language == "zh"] if key in _WORDS else key


def help_of(language: Language, key: str) -> str:
    """What a setting does."""
    if language == "zh" and key in _WORDS:
        return _WORDS[key][2]
    return Settings.model_fields[key].description or ""


def unit_of(language: Language, unit: str) -> str:
    """What a unit is called."""
    return UNITS.get(unit, unit) if language == "zh" else unit
