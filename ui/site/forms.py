"""The fields of a form, as browsers send one without a script."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request

_MAX_FORM_BYTES: Final = 8000


async def read_form(request: Request) -> dict[str, str]:
    """Every field with its first value; {} for what is no form or is too long."""
    body = b""
    async for part in request.stream():
        body += part[: _MAX_FORM_BYTES + 1]
        if len(body) > _MAX_FORM_BYTES:
            return {}
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=10)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}
