"""Columns of numbers stand flush right, also where a model has not marked them so, and no cell of a row is lost.

Knows Markdown's tables only."""

from __future__ import annotations

import re
from typing import Final

_RULE: Final = re.compile(r" {0,3}\|?(?: *:?-+:? *\|)* *:?-+:? *\|? *")
"""The line under a table's head."""
_FENCE: Final = re.compile(r" *(?:(?:[-*+]|\d{1,9}[.)]) +)*(`{3,}|~{3,})")
_NUMBER: Final = re.compile(r"[-+−~≈]?[$€£¥]? ?\d[\d,. ]*(?:%|[a-zA-Z°]{1,3}|元|万|亿)?")
_BAR: Final = re.compile(r"(?<!\\)\|")
_MAX_CHARS: Final = 40
"""A longer cell is no number."""
_MAX_COLUMNS: Final = 100
"""A wider table is left as it is: every column is looked at in every row."""


def align_numbers(text: str) -> str:
    """The Markdown with `:` under the heads of columns that hold nothing but numbers. Code is left alone.

    Markdown shows no more cells of a row than the head has: what is too much stands in the last one.
    """
    if "|" not in text:
        return text
    lines, fence, last = text.split("\n"), "", 0
    for at, line in enumerate(lines):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence):
                fence = ""
        elif not fence and at and at >= last and "|" in line and "|" in lines[at - 1] and _RULE.fullmatch(line):
            last = next((n for n in range(at + 1, len(lines)) if "|" not in lines[n]), len(lines))
            n_columns = len(_cells(line))
            if n_columns == len(_cells(lines[at - 1])) and n_columns <= _MAX_COLUMNS:
                rows = [_held(row, n_columns) for row in lines[at + 1 : last]]
                lines[at:last] = [_marked(line, [_cells(row) for row in rows]), *rows]
    return "\n".join(lines)


def _held(row: str, n_columns: int) -> str:
    cells = _cells(row)
    if len(cells) <= n_columns:
        return row
    return _row(row, [*cells[: n_columns - 1], r" \| ".join(cells[n_columns - 1 :])])


def _marked(rule: str, rows: list[list[str]]) -> str:
    marks = _cells(rule)
    for column, mark in enumerate(marks):
        found = [row[column] for row in rows if column < len(row) and row[column]]
        if ":" not in mark and found and all(len(cell) <= _MAX_CHARS and _NUMBER.fullmatch(cell) for cell in found):
            marks[column] = f"{mark}:"
    return _row(rule, marks)


def _row(line: str, cells: list[str]) -> str:
    """These cells, as far to the right as `line`."""
    return f"{line[: len(line) - len(line.lstrip())]}|{'|'.join(cells)}|"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _BAR.split(line.strip().removeprefix("|").removesuffix("|"))]
