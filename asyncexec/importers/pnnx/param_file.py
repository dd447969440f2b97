"""``.pnnx.param``: a magic number, counts of operators and operands, then an operator a line.

A line is ``type name inputs outputs``, the names of as many operands, and ``key=value`` for the rest: ``@weight=`` the
shape and type of an attribute, whose bytes are in the ``.bin`` file, ``$input=`` the operand that is so called,
``#0=`` the shape and type of an operand, and anything else a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias

from asyncexec.framework.errors import DataLossError, InvalidArgumentError, OpError
from asyncexec.framework.types import DType
from asyncexec.importers.files import read_file
from asyncexec.importers.pnnx.bin_file import AttributeFile
from asyncexec.importers.pnnx.param_values import TypedShape, parse_param, parse_typed_shape
from asyncexec.importers.pnnx.records import PnnxOperand, PnnxOperator

MAGIC: Final = "7767517"
EXPRESSION: Final = "expr"  # a text, whatever it looks like

# Gives the array of an attribute, by its name, shape and dtype.
ReadAttribute: TypeAlias = Callable[[str, tuple[int, ...], DType], Any]


@dataclass(slots=True)
class _Line:
    """An operator as its line tells it; operands by name."""

    number: int
    type: str
    name: str
    inputs: list[str]
    outputs: list[str]
    params: dict[str, object] = field(default_factory=dict)
    attributes: dict[str, TypedShape] = field(default_factory=dict)
    input_keys: list[tuple[str, str]] = field(default_factory=list)  # name, operand
    shapes: dict[str, TypedShape] = field(default_factory=dict)


def read_pnnx(
    param: str | PathLike[str],
    bin: str | PathLike[str] | None = None,  # noqa: A002 - the name of the file
) -> dict[str, PnnxOperator]:
    """The operators of a model by name, in the order of the file.

    Raises:
        NotFoundError: there is no such file, or an attribute is not in it.
        DataLossError: a file is truncated, or none of PNNX's.
        InvalidArgumentError: an operator is malformed; the error names it and its line.
    """
    path = Path(param)
    lines = parse_lines(read_file(path, "a .pnnx.param file"), repr(str(path)))
    if not any(line.attributes for line in lines):
        return _operators(lines, repr(str(path)), _no_attributes)
    with AttributeFile(path.with_suffix(".bin") if bin is None else Path(bin)) as attributes:
        return _operators(lines, repr(str(path)), attributes.read)


def _no_attributes(name: str, shape: tuple[int, ...], dtype: DType) -> object:
    raise DataLossError(f"there is no file for attribute {name!r}")


def parse_lines(data: bytes, source: str) -> list[_Line]:
    """The operators in *data*, the bytes of a param file; errors as of :func:`read_pnnx`."""
    try:
        texts = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise DataLossError(f"{source} is no .pnnx.param file: {error}") from error
    if not texts or texts[0].strip() != MAGIC:
        raise DataLossError(f"{source} is no .pnnx.param file", hint=f"its first line is {MAGIC}")
    counts = texts[1].split() if len(texts) > 1 else []
    if len(counts) != 2 or not all(count.isdecimal() and len(count) < 10 for count in counts):
        raise DataLossError(f"{source}, line 2: expected the numbers of operators and of operands")
    found = [_parse_line(text, number, source) for number, text in enumerate(texts[2:], 3) if text.strip()]
    if len(found) != int(counts[0]):
        raise DataLossError(f"{source} is cut short or has lines too many: {len(found)} of {counts[0]} operators")
    operands = sum(len(line.outputs) for line in found)
    if operands != int(counts[1]):
        raise DataLossError(f"{source} has {operands} operands, and says it has {counts[1]}")
    return found


def _parse_line(text: str, number: int, source: str) -> _Line:
    where = f"{source}, line {number}"
    words = text.split()
    if len(words) < 4 or not all(count.isdecimal() and len(count) < 10 for count in words[2:4]):
        raise InvalidArgumentError(f"{where}: expected type, name and the numbers of inputs and outputs")
    inputs, outputs = int(words[2]), int(words[3])
    rest = 4 + inputs + outputs
    if rest > len(words) or any("=" in word for word in words[4:rest]):
        raise InvalidArgumentError(
            f"{where}: operator {words[1][:100]!r} tells of {inputs} inputs and {outputs} outputs, and names fewer"
        )
    line = _Line(number, words[0], words[1], words[4 : 4 + inputs], words[4 + inputs : rest])
    for word in words[rest:]:
        key, is_pair, value = word.partition("=")
        try:
            _add_pair(line, key, value, bool(is_pair))
        except ValueError as error:
            raise InvalidArgumentError(f"{where}: operator {line.name[:100]!r}: {error}") from error
    return line


def _add_pair(line: _Line, key: str, value: str, is_pair: bool) -> None:
    """Add one ``key=value`` to *line*; ValueError when it cannot be read."""
    if not is_pair or not key.strip("@#$"):
        raise ValueError(f"{key[:100]!r} is no key=value")
    name = key[1:]
    if key[0] == "@":
        shape = parse_typed_shape(value)
        if shape.dtype is None or None in shape.shape:
            raise ValueError(f"attribute {name!r} needs a type and whole dimensions, not {value[:100]!r}")
        line.attributes[name] = shape
    elif key[0] == "$":
        line.input_keys.append((name, value))
    elif key[0] == "#":
        line.shapes[name] = parse_typed_shape(value)
    else:
        line.params[key] = value if key == EXPRESSION else parse_param(value)


def _operators(lines: list[_Line], source: str, read: ReadAttribute) -> dict[str, PnnxOperator]:
    """The operators that *lines* tell, with their attributes."""
    shapes = {name: shape for line in lines for name, shape in line.shapes.items()}
    operands: dict[str, PnnxOperand] = {}
    producers: dict[str, str] = {}
    takers: dict[str, list[str]] = {}
    found: dict[str, PnnxOperator] = {}
    for line in lines:
        where = f"{source}, line {line.number}: operator {line.name[:100]!r}"
        if line.name in found:
            raise InvalidArgumentError(f"{where}: there is an operator of that name before")
        for name in line.inputs:
            if name not in operands:
                raise InvalidArgumentError(f"{where} takes operand {name[:100]!r}, which no operator before it gives")
            takers.setdefault(name, []).append(line.name)
        for name in line.outputs:
            if name in operands:
                raise InvalidArgumentError(f"{where} gives operand {name[:100]!r}, as {producers[name]!r} does")
            shape = shapes.get(name)
            operands[name] = PnnxOperand(name) if shape is None else PnnxOperand(name, shape.dtype, shape.shape)
            producers[name] = line.name
        found[line.name] = PnnxOperator(
            line.type,
            line.name,
            tuple(operands[name] for name in line.inputs),
            tuple(operands[name] for name in line.outputs),
            params=line.params,
            attributes=dict(_attributes(line, where, read)),
            input_names=_input_names(line),
            line=line.number,
        )
    return {name: replace(op, consumers=_consumers(op, takers)) for name, op in found.items()}


def _attributes(line: _Line, where: str, read: ReadAttribute) -> Iterator[tuple[str, object]]:
    for name, (shape, dtype) in line.attributes.items():
        if dtype is None:
            continue
        try:
            yield name, read(f"{line.name}.{name}", tuple(size or 0 for size in shape), dtype)
        except OpError as error:
            raise type(error)(f"{where}: {error.message}") from error


def _input_names(line: _Line) -> tuple[str, ...]:
    """What each input is called; one operand may be several of them."""
    names = [""] * len(line.inputs)
    for key, operand in line.input_keys:
        places = [place for place, name in enumerate(line.inputs) if name == operand and not names[place]]
        if places:
            names[places[0]] = key
    return tuple(names) if any(names) else ()


def _consumers(operator: PnnxOperator, takers: dict[str, list[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(taker for operand in operator.outputs for taker in takers.get(operand.name, ())))
