"""A line of the log for each call: no bodies, no headers and no tokens."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Final

from asyncexec.framework.clock import NS_PER_MS
from asyncexec.service.observing.call_record import CallRecord
from asyncexec.service.observing.log_lines import ACCESS, FIELDS, escaped

_TRACE_PARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_WORD: Final = re.compile(r'[^\s"=]+')
_MOST_CHARACTERS: Final = 300  # of a field: clients choose paths


def log_call(call: CallRecord | None, fields: Mapping[str, object], duration_ns: int, *, is_fault: bool) -> None:
    """Write the line of *call*; what there is no value for is left out."""
    call = call or CallRecord(None)
    every = {
        **fields,
        "duration_ms": round(duration_ns / NS_PER_MS, 3),
        "model": call.model_name,
        "version": call.model_version,
        "code": call.code,
        "node": call.node,
        "error": call.error if is_fault else "",  # that of a caller's mistake may have what the caller sent
    }
    told = {name: _short(value) for name, value in every.items() if value != ""}
    message = " ".join(f"{name}={_shown(value)}" for name, value in told.items())
    ACCESS.log(logging.WARNING if is_fault else logging.INFO, "%s", message, extra={FIELDS: told})


def trace_id_of(headers: Mapping[str, str]) -> str:
    """The number of the trace that the client says it is in (``traceparent``), or ""."""
    found = _TRACE_PARENT.fullmatch(headers.get("traceparent", ""))
    return "" if found is None else found[1]


def _shown(value: object) -> str:
    """*value* as one word, in quotes where it would be several."""
    text = escaped(str(value))
    return text if _WORD.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _short(value: object) -> object:
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        return f"{value[:_MOST_CHARACTERS]}..."
    return value
