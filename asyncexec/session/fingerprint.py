"""The fingerprint of what a stream computes: a checkpoint is for the graph that it was made with.

It has the names of the fetches, and an entry for each node that the fetches, or the updates of states, depend on: the
op, the inputs, and the attrs, of which large ones are digests.  The code of Python functions is not in it, so a
corrected op goes on with the states of the former one.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.errors import DataLossError, FailedPreconditionError
from asyncexec.framework.graph_def import AttrValue, FunctionDef
from asyncexec.framework.tensor_proto import decode_shape
from asyncexec.framework.types import as_dtype
from asyncexec.graph.graph_to_def import NodeEncoder
from asyncexec.graph.node import Node
from asyncexec.graph.recursion import functions_named_by

_FETCHES: Final = "fetches"
_NODES: Final = "nodes"
_DIGEST: Final = "#"  # what the digest of a large attr begins with
_DIGEST_LENGTH: Final = 16
_STRIDE_BYTES: Final = 2**20
_MAX_TEXT: Final = 60
_MAX_BYTES: Final = 2**30  # of a fingerprint
_SHOWN: Final = 3


def fingerprint_of(fetches: Iterable[str], nodes: Iterable[Node]) -> Stage[bytes]:
    """The fingerprint of *nodes*, compressed, as a stage."""
    encode = NodeEncoder().node_def
    found: dict[str, list[object]] = {}
    ordered = sorted(nodes, key=lambda node: node.id)
    functions: set[str] = set()
    for start in range(0, len(ordered), STRIDE):
        for node in ordered[start : start + STRIDE]:
            made = encode(node)
            attrs: dict[str, str] = {}
            for name, value in made.attr.items():
                if not name.startswith("_"):
                    attrs[name] = yield from _text_of(value)
            found[node.name] = [made.op, list(made.input), attrs]
            functions.update(functions_named_by(made))
        yield
    if ordered:
        library = ordered[0].graph.functions
        for name in _reached(functions, library):
            digest = _digest_of(repr(library[name].node_def).encode())
            found[f"function {name}"] = ["function", [], {"body": digest}]
            yield
    content = json.dumps({_FETCHES: sorted(fetches), _NODES: found}).encode()
    return zlib.compress(content, 1)


def _text_of(attr: AttrValue) -> Stage[str]:
    """What of *attr* shows that it is another."""
    if attr.tensor is not None and len(attr.tensor.tensor_content) > _STRIDE_BYTES:
        digest = hashlib.sha256(repr((attr.tensor.dtype, attr.tensor.tensor_shape)).encode())
        content = memoryview(attr.tensor.tensor_content)
        for start in range(0, len(content), _STRIDE_BYTES):
            digest.update(content[start : start + _STRIDE_BYTES])
            yield
        return _DIGEST + digest.hexdigest()[:_DIGEST_LENGTH]
    if attr.type is not None:
        return as_dtype(attr.type).name
    if attr.shape is not None:
        return f"of shape {decode_shape(attr.shape)}"
    text = repr(getattr(attr, attr.kind))
    return text if len(text) <= _MAX_TEXT else _digest_of(text.encode())


def _digest_of(content: bytes) -> str:
    return _DIGEST + hashlib.sha256(content).hexdigest()[:_DIGEST_LENGTH]


def _reached(names: set[str], library: Mapping[str, FunctionDef]) -> list[str]:
    seen: set[str] = set()
    ahead = sorted(names)
    while ahead:
        name = ahead.pop()
        if name not in seen and name in library:
            seen.add(name)
            for node in library[name].node_def:
                ahead += functions_named_by(node)
    return sorted(seen)


def check_fingerprint(stored: object, present: bytes, where: str, hint: str) -> None:
    """FailedPreconditionError, which names what differs, unless the graph is that of the checkpoint.

    Raises:
        DataLossError: *stored* is no fingerprint.
    """
    if stored == present:
        return
    before, now = _unpacked(stored, where), _unpacked(present, where)
    differences = list(_differences(before[_NODES], now[_NODES]))
    if before[_FETCHES] != now[_FETCHES]:
        differences.insert(0, f"the fetches were {before[_FETCHES]} and are {now[_FETCHES]}")
    if not differences:
        return
    more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    raise FailedPreconditionError(
        f"the graph has changed since {where} was made: {'; '.join(differences[:_SHOWN])}{more}",
        hint=hint,
    )


def _unpacked(content: Any, where: str) -> Any:
    try:
        unpacker = zlib.decompressobj()
        return json.loads(unpacker.decompress(content, _MAX_BYTES))
    except (TypeError, ValueError, zlib.error) as error:
        raise DataLossError(f"{where} has no fingerprint of a graph: {error}") from error


def _differences(before: Mapping[str, Sequence[Any]], now: Mapping[str, Sequence[Any]]) -> Iterable[str]:
    for name, entry in before.items():
        if name not in now:
            yield f"node {name!r} ({entry[0]}) is gone"
        elif now[name] != entry:
            (op, inputs, attrs), (new_op, new_inputs, new_attrs) = entry, now[name]
            if op != new_op:
                yield f"node {name!r} was {op} and is {new_op}"
            elif inputs != new_inputs:
                yield f"the inputs of node {name!r} were {inputs} and are {new_inputs}"
            else:
                yield from (
                    f"attr {attr!r} of node {name!r} ({op}) {_change(attrs.get(attr), new_attrs.get(attr))}"
                    for attr in sorted({*attrs, *new_attrs})
                    if attrs.get(attr) != new_attrs.get(attr)
                )
    for name in now:
        if name not in before:
            yield f"node {name!r} ({now[name][0]}) is new"


def _change(before: str | None, now: str | None) -> str:
    if before is None or now is None:
        return "is new" if before is None else "is gone"
    if before.startswith(_DIGEST) or now.startswith(_DIGEST):
        return "has another value"
    return f"was {before} and is {now}"
