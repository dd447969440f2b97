"""JournalCodec: the bytes of Python objects in a journal.

An error that an op gave as a value (``ax.catch``, ``on_error="yield"``) comes back as an error of the same status code,
and an array of objects as one; all else is the user's codec's, or JSON.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from asyncexec.durable.record import Codec, Record, from_bytes, to_bytes
from asyncexec.framework.errors import OpError, error_class

_PLAIN, _ERROR, _ARRAY = b"v", b"e", b"a"
_PLACE: Final = ("node", "op", "hint", "user_line")


class JournalCodec:
    """The codec of a journal, on top of the *codec* for all other objects."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def encode(self, value: object) -> bytes:
        """The bytes of *value*."""
        if isinstance(value, OpError):
            told = {name: getattr(value, name) for name in _PLACE}
            told |= {"code": int(value.code), "message": value.message, "loops": value.iteration}
            return _ERROR + json.dumps(told).encode()
        if type(value) is np.ndarray and value.dtype == np.object_:
            elements = {f"element {i}": element for i, element in enumerate(value.flat)}
            return _ARRAY + to_bytes(Record({"shape": value.shape}, elements), self)
        return _PLAIN + self._codec.encode(value)

    def decode(self, content: bytes) -> Any:
        """What *content* was made of."""
        kind, content = content[:1], content[1:]
        if kind == _PLAIN:
            return self._codec.decode(content)
        if kind == _ERROR:
            told = json.loads(content)
            error = error_class(told["code"])(told["message"], **{name: told[name] for name in _PLACE})
            error.locate_iteration(told["loops"].split(", ") if told["loops"] else ())
            return error
        record = from_bytes(content, self)
        array = np.empty(len(record.values), dtype=object)
        for i, element in enumerate(record.values.values()):
            array[i] = element
        return array.reshape(record.about["shape"])
