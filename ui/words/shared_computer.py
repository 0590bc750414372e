"""The sentences about a computer that several people use. messages.py puts them beside the others."""

from __future__ import annotations

from typing import Final

SHARED_COMPUTER: Final = {
    "en": {
        "page_forgotten_in_shared": "This conversation is forgotten on the server in {n} min, "
        "and here when this tab closes.",
        "page_forgotten_shared": "The server has forgotten this conversation; it is gone here when this tab closes.",
        "page_shared": "This is a shared computer: keep nothing once the tab is closed",
        "page_shared_sure": "This deletes what this browser has kept (conversations: {n}). Tick once more to do it.",
        "page_whose": "Do several people use this computer?",
        "page_whose_many": "Yes: keep nothing here",
        "page_whose_many_kept": "Yes: keep nothing here, and delete what is kept from before ({n})",
        "page_whose_mine": "No, it is mine",
        "page_none_shared": "Your conversations will be listed here until this tab closes. This browser keeps nothing.",
        "page_wishes_note_shared": "Kept until this tab closes; used from the next question on.",
    },
    "zh": {
        "page_forgotten_in_shared": "服务器将在 {n} 分钟后忘记此对话，关闭此标签页后这里也不再保留。",
        "page_forgotten_shared": "服务器已忘记此对话，关闭此标签页后这里也不再保留。",
        "page_shared": "这是多人共用的电脑：关闭标签页后不保留任何内容",
        "page_shared_sure": "这会删除此浏览器中保留的 {n} 个对话。再勾选一次即执行。",
        "page_whose": "这台电脑有多人使用吗？",
        "page_whose_many": "是，这里不保留内容",
        "page_whose_many_kept": "是，这里不保留内容，并删除之前保留的对话（{n} 个）",
        "page_whose_mine": "不，只有我用",
        "page_none_shared": "在此标签页关闭之前，您的对话会列在这里。此浏览器不保留任何内容。",
        "page_wishes_note_shared": "保留到此标签页关闭为止，从下一个问题起生效。",
    },
}
