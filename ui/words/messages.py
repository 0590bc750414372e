"""Every sentence a person can see, in Chinese and English. Knows no components and no requests.

A sentence is looked up by its key with `say(language, key, **values)`; tests hold that both languages have the
same keys and the same placeholders. The `page_*` keys are the ones the page's own script needs.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from ui.words.first_run import FIRST_RUN
from ui.words.front_door import FRONT_DOOR
from ui.words.models import MODELS
from ui.words.shared_computer import SHARED_COMPUTER

Language = Literal["zh", "en"]

LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)

_PAGE: Final[dict[Language, dict[str, str]]] = {
    "en": {
        "title": "Office Chat",
        "preview": "Chat with a language model on the office network. Nothing leaves it.",
        "model": "{model} answers on this PC; nothing leaves the office network.",
        "model_loading": "The model is being loaded, one moment…",
        "model_failed": "The model could not be loaded. Please tell whoever looks after this PC.",
        "welcome": "What can I help you with?",
        "welcome_detail": "Ask a question, paste a text, or think out loud. "
        "Small models make mistakes: check what matters.",
        "starter_1": "How do I write a polite reminder about an unpaid invoice?",
        "starter_2": "Explain the difference between a mean and a median.",
        "starter_3": "Give me five ideas for a short team meeting.",
        "tasks": "Common tasks",
        "task_weekly": "Weekly report",
        "begin_weekly": "Write a weekly report from these notes, with the parts Done, Next and Problems:\n\n",
        "task_sql": "SQL helper",
        "begin_sql": "Write an SQL query. The tables and their columns, then what is wanted:\n\n",
        "task_translate": "Translate",
        "begin_translate": "Translate into Chinese, or into English if it is Chinese. Only the translation:\n\n",
        "task_explain": "Explain code",
        "begin_explain": "Explain step by step what this code does:\n\n",
        "task_titles": "Title ideas",
        "begin_titles": "Suggest five short titles for this text:\n\n",
        "wishes": "My settings",
        "wish_instructions": "Instructions for every answer",
        "wish_example": "For example: I work in accounting. Use simple words.",
        "wish_creativity": "Creativity",
        "wish_length": "Answer length",
        "wish_usual": "Office default",
        "wish_exact": "Exact",
        "wish_calm": "Balanced",
        "wish_lively": "Creative",
        "wish_short": "Short",
        "wish_medium": "Medium",
        "page_wishes_note": "Kept in this browser; used from the next question on.",
        "placeholder": "Write a message",
        "hint": "Enter sends, Shift + Enter starts a new line.",
        "send": "Send",
        "stop": "Stop",
        "new_chat": "New chat",
        "again": "Ask again",
        "go_on": "Continue",
        "forget": "Forget me",
        "log_out": "Log out",
        "switch_language": "中文",
        "conversation": "Conversation",
        "thinking": "Thinking…",
        "place": "You are number {n} in line.",
        "place_wait": "You are number {n} in line, about {s} s.",
        "next": "You are next in line.",
        "notice_input_cut": "The message was too long; only its first {limit} characters were used.",
        "notice_limit": "The answer reached its length limit. Press Continue for more.",
        "notice_history_cut": "The conversation has become long; its oldest part is no longer taken into account.",
        "notice_short_answer": "Many people are asking right now: answers are shorter than usual.",
        "notice_short_history": "Many people are asking right now: the oldest part of the conversation was left out.",
        "notice_stopped": "Stopped.",
        "notice_unread": "Nobody was reading any more, so the writing stopped here. Press Continue for the rest.",
        "notice_engine_failed": "The engine was restarted while this was being written. What was written is kept: "
        "press Continue or Ask again.",
        "notice_closing": "The program was shut down while this was being written.",
        "notice_expired": "What was said here before has not been used for a while and is forgotten.",
        "saved": "Saved answer, {when}",
        "saved_afresh": "Saved answer, {when} – ask afresh",
        "date": "{day} {month} {year}, {time}",
        "months": "January February March April May June July August September October November December",
        "closing": "The program is being shut down. Please try again in a moment.",
        "busy": "Busy right now: every place is taken. Please try again shortly.",
        "saved_only": "Very many people are asking right now, so only saved and quick answers are given. "
        "Please try again in a minute.",
        "overloaded": "Too many people are asking right now. Please try again in a minute.",
        "not_ready": "The model is not ready yet. Please try again in a moment.",
        "empty": "Please write something first.",
        "nothing_to_repeat": "There is no question here that could be asked again. Please write it once more.",
        "bad_wishes": "My settings, at the side, cannot be used like this. Please shorten or empty the instructions.",
        "too_long": "That message is too long. Please send it in parts.",
        "already_answering": "Another answer of yours is still being written, perhaps in another tab. "
        "Please wait for it or stop it there.",
        "unknown_person": "This page does not know you any more. Please reload it.",
        "refused": "That is not possible right now.",
        "engine_failed": "The engine is being restarted. Please ask again in a moment.",
        "failed": "Something went wrong here. Please try again.",
        "unknown_host": "This program does not answer to the name in that address. Please use one of the addresses it "
        "prints when it starts. (For the owner: further names belong into the setting allowed_hosts.)",
        "foreign_origin": "This request comes from a page of somebody else and is not carried out.",
        "too_fast": "That was a lot of questions in a short time. Please ask again in {seconds} seconds.",
        "login_needed": "Please log in first.",
        "login_person": "Office Chat",
        "login_person_detail": "Please enter the passcode. Whoever looks after the office PC can tell you.",
        "login_person_label": "Passcode",
        "login_admin": "Office Chat – Administration",
        "login_admin_detail": "Please enter the admin password.",
        "login_admin_unset": "There is no admin password yet. Until there is one, this page opens only in the browser "
        "that the program has opened on the office PC, or by the link it has written into its window. "
        "A new link, on that PC: app.py admin-link (the packaged program: office-chat admin-link).",
        "login_link_used": "This link has been used, or is too old. A new one, on the office PC: app.py admin-link "
        "(the packaged program: office-chat admin-link).",
        "login_link_elsewhere": "This link works in a browser on the office PC itself only.",
        "login_admin_label": "Admin password",
        "login_button": "Log in",
        "login_wrong": "That is not right. Please try again.",
        "login_too_fast": "Too many wrong attempts. Please try again in {seconds} seconds.",
        "login_busy": "Many people are logging in right now. Please try again in a moment.",
        "needs_key": "This needs a valid API key: Authorization: Bearer <key>. The owner makes one with "
        "app.py add-key; with the setting keyless_here programs on this PC need none.",
        "needs_admin": "This is for the admin. Please log in as the admin first.",
        "not_admin": "This is for the admin alone.",
        "toast_title": "Sorry",
        "page_place": "You are number {n} in line. Your message is sent as soon as it is your turn.",
        "page_joining": "Sending…",
        "page_forget_sure": "Delete all conversations, here and on the server? Click again",
        "page_log_out_sure": "Log out and delete the conversations kept in this browser? Click again",
        "page_restarted": "The program was started again, and this page with it. Your conversations are still here.",
        "newest": "To the newest message",
        "page_lost": "The connection to the office PC is lost. Your text is kept, and this page goes on by itself "
        "as soon as the program is back.",
        "page_closing": "The program is being shut down. Your text is kept, and this page goes on by itself "
        "as soon as the program is back.",
        "page_copy": "Copy",
        "page_copied": "Copied",
        "page_copy_failed": "Copying is not possible in this browser. Please select the text and press Ctrl + C.",
        "copy_all": "Copy all",
        "page_edit": "Edit the question",
        "editing": "You are changing an earlier message. What follows it is answered anew.",
        "cancel": "Cancel",
        "page_good": "Good answer",
        "page_bad": "Bad answer",
        "page_count": "{n} of {limit} characters",
        "page_over": "{n} of {limit} characters: only the first {limit} will be used",
        "history": "Conversations",
        "close": "Close",
        "page_find": "Search",
        "page_none": "Your conversations will be listed here. They are kept in this browser only.",
        "page_not_found": "Nothing found.",
        "page_menu": "More: {title}",
        "page_rename": "Rename",
        "page_pin": "Pin",
        "page_unpin": "Unpin",
        "page_export_md": "Export as Markdown",
        "page_export_json": "Export as JSON",
        "page_delete": "Delete",
        "page_delete_sure": "Delete? Click again",
        "page_pinned": "Pinned",
        "temporary": "Temporary chat",
        "temporary_on": "Temporary chat is on: it is not listed here, and the server forgets it by itself.",
        "page_forgotten_in": "This conversation is forgotten on the server in {n} min; your browser keeps it.",
        "page_forgotten": "This conversation is in your browser only.",
        "page_forgotten_temporary": "This conversation is forgotten everywhere in {n} min.",
        "page_store_full": "This browser's memory for this page is full: the conversation is not kept here. "
        "Delete some old ones from the list.",
        "page_store_blocked": "This browser does not let the page keep anything: conversations are lost when "
        "the page is closed.",
        "page_elsewhere": "This conversation is open in another tab.",
        "page_place_wait": "You are number {n} in line, about {s} s. Your message is sent as soon as it is your turn.",
        "when_free": "Send when free",
        "page_waiting_free": "Your message is sent as soon as a place is free.",
        "page_too_old": "This browser is too old for this page. Please use Chrome or Edge 108, Firefox 101, "
        "Safari 16 or newer.",
        "page_failed": "Something went wrong here. Please try again.",
        "console_starting": "Office Chat is starting…",
        "console_already": "Office Chat is already running: {url}",
        "console_working": "Answering {running}, waiting {waiting}.",
        "console_stop": "To stop: press Ctrl-C here, or close this window.",
        "console_engine_failed": "The model cannot answer: {reason}\n"
        "The program goes on; choose another model at {url}",
        "console_kernels": "The fastest kernels do not run on this processor ({failed}): simpler ones compute, {now}. "
        "--retry-kernels tries them again.",
        "console_model_replaced": "{reason} {model}, which answered before, has taken its place.",
        "console_damaged": "Damaged, perhaps by a power cut: {names}. What could last be read of it is in force.",
        "console_crashed": "Office Chat ended by an error nobody expected. Where it happened stands in {path}; "
        "no question and no answer does.",
    },
    "zh": {
        "title": "办公室聊天",
        "preview": "与办公室网络里的语言模型聊天，内容不会离开本网络。",
        "model": "由本机的 {model} 回答，内容不会离开办公网络。",
        "model_loading": "模型正在加载，请稍候……",
        "model_failed": "模型无法加载，请联系这台电脑的管理员。",
        "welcome": "有什么可以帮您？",
        "welcome_detail": "提个问题，粘贴一段文字，或者聊聊想法。小模型会出错，重要内容请核对。",
        "starter_1": "怎样礼貌地提醒客户支付逾期账单？",
        "starter_2": "平均数和中位数有什么区别？",
        "starter_3": "给我五个简短团队会议的点子。",
        "tasks": "常用任务",
        "task_weekly": "写周报",
        "begin_weekly": "请根据以下要点写一份周报，分为本周完成、下周计划和遇到的问题：\n\n",
        "task_sql": "写 SQL",
        "begin_sql": "请写一条 SQL 查询。先列出表和字段，再说明要查什么：\n\n",
        "task_translate": "翻译",
        "begin_translate": "请翻译成英文；如果原文是英文，就翻译成中文。只给出译文：\n\n",
        "task_explain": "解释代码",
        "begin_explain": "请逐步解释这段代码的作用：\n\n",
        "task_titles": "起标题",
        "begin_titles": "请为下面的文字起五个简短的标题：\n\n",
        "wishes": "我的设置",
        "wish_instructions": "对每个回答的要求",
        "wish_example": "例如：我在财务部工作，请用简单的词语。",
        "wish_creativity": "创造性",
        "wish_length": "回答长度",
        "wish_usual": "使用办公室的默认设置",
        "wish_exact": "精确",
        "wish_calm": "平衡",
        "wish_lively": "有创意",
        "wish_short": "简短",
        "wish_medium": "适中",
        "page_wishes_note": "只保存在此浏览器中，从下一个问题起生效。",
        "placeholder": "输入消息",
        "hint": "按 Enter 发送，按 Shift + Enter 换行。",
        "send": "发送",
        "stop": "停止",
        "new_chat": "新对话",
        "again": "重新回答",
        "go_on": "继续",
        "forget": "忘记我",
        "log_out": "退出登录",
        "switch_language": "English",
        "conversation": "对话",
        "thinking": "正在思考……",
        "place": "您排在第 {n} 位。",
        "place_wait": "您排在第 {n} 位，大约还需 {s} 秒。",
        "next": "马上就轮到您了。",
        "notice_input_cut": "内容过长，已截取前{limit}字",
        "notice_limit": "回答已达到长度上限，按“继续”可接着写。",
        "notice_history_cut": "对话较长，最早的内容已不再参考。",
        "notice_short_answer": "现在提问的人多，回答会比平时短一些。",
        "notice_short_history": "现在提问的人多，对话中最早的内容暂不参考。",
        "notice_stopped": "已停止。",
        "notice_unread": "页面关闭后无人阅读，回答到此停止。按“继续”可接着写。",
        "notice_engine_failed": "回答过程中引擎重新启动，已写出的内容已保留：请按“继续”或“重新回答”。",
        "notice_closing": "回答过程中程序已关闭。",
        "notice_expired": "之前的对话已有一段时间没有使用，内容已被清除。",
        "saved": "已保存的回答（{when}）",
        "saved_afresh": "已保存的回答（{when}）· 重新回答",
        "date": "{year}年{month}月{day}日 {time}",
        "months": "1 2 3 4 5 6 7 8 9 10 11 12",
        "closing": "程序正在关闭，请稍后再试。",
        "busy": "现在人多，位置已满，请稍后再试。",
        "saved_only": "现在提问的人太多，暂时只提供已保存的回答和快捷回答，请一分钟后再试。",
        "overloaded": "现在提问的人太多，请一分钟后再试。",
        "not_ready": "模型还没有准备好，请稍后再试。",
        "empty": "请先输入内容。",
        "nothing_to_repeat": "这里没有可以重新回答的问题，请再输入一次。",
        "bad_wishes": "侧栏中的“我的设置”无法使用，请缩短或清空其中的要求。",
        "too_long": "消息太长了，请分几次发送。",
        "already_answering": "您的另一个回答还在生成（可能在另一个标签页），请等它结束，或在那里停止它。",
        "unknown_person": "无法识别您的身份，请刷新页面。",
        "refused": "现在无法这样做。",
        "engine_failed": "引擎正在重新启动，请稍后再问。",
        "failed": "出了点问题，请再试一次。",
        "unknown_host": "本程序不使用该网址中的名称，请使用程序启动时显示的地址。"
        "（管理员：其他名称请写入设置 allowed_hosts。）",
        "foreign_origin": "该请求来自其他网站的页面，已被拒绝。",
        "too_fast": "提问过于频繁，请在 {seconds} 秒后再试。",
        "login_needed": "请先登录。",
        "login_person": "办公室聊天",
        "login_person_detail": "请输入口令。如不清楚，请询问管理这台电脑的同事。",
        "login_person_label": "口令",
        "login_admin": "办公室聊天 · 管理",
        "login_admin_detail": "请输入管理员密码。",
        "login_admin_unset": "尚未设置管理员密码。设置之前，只有程序在办公室电脑上打开的浏览器，或程序窗口里写出的链接"
        "才能进入。"
        "需要新链接时，在那台电脑上运行：app.py admin-link（打包的程序：office-chat admin-link）。",
        "login_link_used": "此链接已用过或已过期。需要新链接时，在办公室电脑上运行：app.py admin-link"
        "（打包的程序：office-chat admin-link）。",
        "login_link_elsewhere": "此链接只能在办公室电脑本机的浏览器中使用。",
        "login_admin_label": "管理员密码",
        "login_button": "登录",
        "login_wrong": "输入不正确，请重试。",
        "login_too_fast": "错误次数过多，请在 {seconds} 秒后再试。",
        "login_busy": "现在登录的人较多，请稍后再试。",
        "needs_key": "需要有效的 API 密钥：Authorization: Bearer <密钥>。管理员可用 app.py add-key 生成；"
        "打开设置 keyless_here 后，本机上的程序不需要密钥。",
        "needs_admin": "此处仅限管理员，请先以管理员身份登录。",
        "not_admin": "此处仅限管理员。",
        "toast_title": "抱歉",
        "page_place": "您排在第 {n} 位，轮到您时会自动发送。",
        "page_joining": "正在发送……",
        "page_forget_sure": "删除此处和服务器上的全部对话？再按一次",
        "page_log_out_sure": "退出登录并删除此浏览器中保存的对话？再按一次",
        "page_restarted": "程序已重新启动，本页已重新加载。您的对话都还在。",
        "newest": "回到最新消息",
        "page_lost": "与办公室电脑的连接已断开。您的文字已保留，程序恢复后本页会自动继续。",
        "page_closing": "程序正在关闭。您的文字已保留，程序恢复后本页会自动继续。",
        "page_copy": "复制",
        "page_copied": "已复制",
        "page_copy_failed": "此浏览器无法复制，请选中文字后按 Ctrl + C。",
        "copy_all": "复制全部",
        "page_edit": "修改问题",
        "editing": "您正在修改之前的消息，其后的内容会重新回答。",
        "cancel": "取消",
        "page_good": "回答得好",
        "page_bad": "回答得不好",
        "page_count": "{n} / {limit} 字",
        "page_over": "{n} / {limit} 字：只会使用前 {limit} 字",
        "history": "对话列表",
        "close": "关闭",
        "page_find": "搜索",
        "page_none": "您的对话会列在这里，只保存在此浏览器中。",
        "page_not_found": "没有找到。",
        "page_menu": "更多：{title}",
        "page_rename": "重命名",
        "page_pin": "置顶",
        "page_unpin": "取消置顶",
        "page_export_md": "导出为 Markdown",
        "page_export_json": "导出为 JSON",
        "page_delete": "删除",
        "page_delete_sure": "确定删除？再按一次",
        "page_pinned": "已置顶",
        "temporary": "临时对话",
        "temporary_on": "临时对话已开启：不会列入对话列表，服务器也会自动忘记。",
        "page_forgotten_in": "服务器将在 {n} 分钟后忘记此对话，您的浏览器会保留它。",
        "page_forgotten": "此对话只保存在您的浏览器中。",
        "page_forgotten_temporary": "此对话将在 {n} 分钟后被彻底清除。",
        "page_store_full": "此浏览器留给本页的存储空间已满，这个对话不会被保存。请从列表中删除一些旧对话。",
        "page_store_blocked": "此浏览器不允许本页保存内容，关闭页面后对话会丢失。",
        "page_elsewhere": "这个对话已在另一个标签页中打开。",
        "page_place_wait": "您排在第 {n} 位，大约还需 {s} 秒，轮到您时会自动发送。",
        "when_free": "有空位时发送",
        "page_waiting_free": "一有空位就会发送您的消息。",
        "page_too_old": "此浏览器版本过低，请使用 Chrome 或 Edge 108、Firefox 101、Safari 16 或更新的版本。",
        "page_failed": "出了点问题，请再试一次。",
        "console_starting": "Office Chat 正在启动…",
        "console_already": "Office Chat 已在运行：{url}",
        "console_working": "正在回答 {running} 个，等待 {waiting} 个。",
        "console_stop": "停止：在此按 Ctrl-C，或关闭此窗口。",
        "console_engine_failed": "模型无法回答：{reason}\n程序继续运行，请在 {url} 选择另一个模型",
        "console_kernels": "最快的计算内核不能在本机处理器上运行（{failed}），现在使用较简单的：{now}。"
        "用 --retry-kernels 可再试一次。",
        "console_model_replaced": "{reason} 现在由之前使用的 {model} 回答。",
        "console_damaged": "文件已损坏（可能因为断电）：{names}。现在使用最后一次能读取的内容。",
        "console_crashed": "Office Chat 因意外错误而结束。出错位置记录在 {path}，其中不含任何问题或回答。",
    },
}
SENTENCES: Final[dict[Language, dict[str, str]]] = {
    language: _PAGE[language]
    | FRONT_DOOR[language]
    | MODELS[language]
    | FIRST_RUN[language]
    | SHARED_COMPUTER[language]
    for language in LANGUAGES
}


def say(language: Language, key: str, **values: object) -> str:
    """The sentence `key` in `language`, its placeholders filled with `values`.

    Raises KeyError for a key or a placeholder that does not exist.
    """
    return SENTENCES[language][key].format(**values)


def in_both(key: str, **values: object) -> str:
    """The sentence in both languages, for answers to whoever it may be."""
    return "\n".join(say(language, key, **values) for language in LANGUAGES)


def known(key: str) -> bool:
    """Whether there is a sentence of that key."""
    return key in SENTENCES["en"]


def language_of(wanted: str | None, accept_language: str | None, preset: str = "auto") -> Language:
    """The language for a request: what the page asked for, else the owner's preset, else the browser's first choice.

    `accept_language` is the header as it came, e.g. "zh-CN,zh;q=0.9,en;q=0.8": browsers list the favourite first.
    """
    for choice in (wanted, preset):
        for language in LANGUAGES:
            if choice == language:
                return language
    return "zh" if (accept_language or "").strip().lower().startswith("zh") else "en"


def size_text(n_bytes: int) -> str:
    """In MB below a thousand of them, then in GB."""
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes < 10**9 else f"{n_bytes / 1e9:.1f} GB"
