"""Columns of numbers stand flush right, also where a model has not marked them so. Knows Markdown's tables only."""

from __future__ import annotations

import re
from typing import Final

_RULE: Final = re.compile(r" {0,3}\|?(?: *:?-+:? *\|)* *:?-+:? *\|? *")
"""The line under a table's head."""
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_NUMBER: Final = re.compile(r"[-+−~≈]?[$€£¥]? ?\d[\d,. ]*(?:%|[a-zA-Z°]{1,3}|元|万|亿)?")
_MAX_CHARS: Final = 40
"""A longer cell is no number."""


def align_numbers(text: str) -> str:
    """The Markdown with `:` under the heads of columns that hold nothing but numbers. Code is left alone."""
    if "|" not in text:
        return text
    lines, fence = text.split("\n"), ""
    for at, line in enumerate(lines):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence):
                fence = ""
        elif not fence and at and "|" in line and "|" in lines[at - 1] and _RULE.fullmatch(line):
            lines[at] = _marked(line, _rows(lines, at + 1))
    return "\n".join(lines)


def _rows(lines: list[str], first: int) -> list[list[str]]:
    rows = []
    for line in lines[first:]:
        if "|" not in line:
            break
        rows.append(_cells(line))
    return rows


def _marked(rule: str, rows: list[list[str]]) -> str:
    marks = _cells(rule)
    for column, mark in enumerate(marks):
        found = [row[column] for row in rows if column < len(row) and row[column]]
        if ":" not in mark and found and all(len(cell) <= _MAX_CHARS and _NUMBER.fullmatch(cell) for cell in found):
            marks[column] = f"{mark}:"
    return f"|{'|'.join(marks)}|"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
