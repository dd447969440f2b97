"""Blocks -> functions: the source of a program, its names and its line tables.

One statement a line, so that the line of an error tells the node.  Values are local variables with numbers, kernels
and constants are globals with numbers: no text of the graph is in the source.  What is long, or deep down, becomes a
function of its own, which takes the variables that it reads and gives those that it writes.

A loop yields now and then: a function with loops is a generator, and who runs it decides when to go on.  So is one with
calls that are awaited: it yields the kernel's ticket and the awaitable, and gets the outputs.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import CodeType, FunctionType
from typing import Any, Final

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.framework.cooperative import FEW, Stage
from asyncexec.graph.node import Node
from asyncexec.regions.code import Code, Line, LoopNames, Surroundings
from asyncexec.regions.expressions import OPERATORS, expression
from asyncexec.regions.in_place import InPlace, overwriting
from asyncexec.regions.lifetimes import Lifetimes, following
from asyncexec.regions.native_parts import find_native, part_of
from asyncexec.regions.program import Call, Move, Program, Value
from asyncexec.regions.schedule import Block, Branch, Piece, Repeat, Statement
from asyncexec.regions.work import MAX_WORK, WorkMeter

MAX_STATEMENTS: Final = 128  # of one function: to compile one holds the event loop
_MAX_INDENT: Final = 14  # Python's own limits are 100, and 20 for loops
FIRST_WORK: Final = 32  # of a loop, before native code takes over: about what it costs to call that

_MAIN: Final = "region"
_YIELDED: Final = re.compile(r"([^ :][^:]*= )?yield from .*|\byield$")
_PLAIN: Final = Line(None, None, (), ())  # which calls no kernel, and is in no loop
_file_numbers: Final = count()


@dataclass(slots=True, eq=False)
class _Function:
    """A function while it is written."""

    name: str
    start: int  # position of its first statement
    source: list[str] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    loops: list[LoopNames] = field(default_factory=list)
    reads: dict[Value, None] = field(default_factory=dict)  # what was made before
    writes: dict[Value, int] = field(default_factory=dict)  # with the least indent that it is written at
    unsure: dict[str, None] = field(default_factory=dict)  # names that may be read before they are written
    held: dict[str, None] = field(default_factory=dict)  # globals of its loops: as parameters they are read sooner
    is_generator: bool = False

    def add(self, indent: int, text: str, call: Call | None = None, arguments: Sequence[str] = ()) -> None:
        self.source.append(" " * indent + text)
        if call is None and not self.loops:
            self.lines.append(_PLAIN)
            return
        node, check = (None, None) if call is None else (call.node, call.check)
        self.lines.append(Line(node, check, tuple(arguments), tuple(self.loops)))


def _giving_up(function: _Function) -> _Function:
    """*function*, a generator, as a plain one that gives None where Python code has much to do."""
    source = [" pass" if line == " yield" else _YIELDED.sub("return None", line) for line in function.source]
    return _Function(function.name, 0, source, function.lines, held=function.held)


def write_code(program: Program, block: Block, surroundings: Surroundings) -> Stage[Code]:
    """The functions of *program*, which is *block* in order."""
    if surroundings.native is not None:
        yield from find_native(block)
    lifetimes = Lifetimes()
    yield from lifetimes.read(program, block)
    return (yield from _Writer(program, lifetimes, surroundings).write(block))


class _Writer:
    def __init__(self, program: Program, lifetimes: Lifetimes, surroundings: Surroundings) -> None:
        self._program = program
        self._at = lifetimes
        self._gives_tuple = surroundings.gives_tuple
        self._pauses = surroundings.pauses
        self._most_work = surroundings.most_work
        self._native = surroundings.native
        self._num_native = 0
        self._has_native = False
        self._num_outside = 0  # native calls outside of all loops and branches
        self._globals: dict[str, Any] = {"checked": surroundings.checked_outputs, "ABSENT": surroundings.absent}
        self._global_names: dict[int, str] = {}  # of kernels, constants and nodes, by id
        self._codes: dict[CodeType, dict[int, Line]] = {}
        self._file = f"<asyncexec {next(_file_numbers)}"
        self._foreign: list[Node] = []
        self._num_loops = 0
        self._num_written = 0  # statements
        self._work_done = 0  # since the last yield
        self._in_place = InPlace(lifetimes) if surroundings.works_in_place else None
        self._work = WorkMeter(surroundings.is_small, surroundings.is_long)

    def write(self, block: Block) -> Stage[Code]:
        main = _Function(_MAIN, 0)
        for value in self._program.defaults:
            main.add(1, f"{self._text(value)} = ABSENT")
        yield from self._block(block, main, 1)
        inputs = [self._text(value) for value in self._program.inputs]
        outputs = [self._text(value) for value in self._program.outputs]
        if self._gives_tuple:
            end = f"return ({', '.join(outputs)}{',' * (len(outputs) == 1)})"
        else:
            end = f"return [{', '.join(outputs)}]"
        main.add(1, end)
        yield
        function = self._compile(main, inputs)
        quick = None
        is_native = main.is_generator and self._num_outside == len(block.statements)
        if is_native and sum(isinstance(statement, Repeat) for statement in block.statements) <= 1:
            quick = self._compile(_giving_up(main), inputs)
        nodes = self._foreign or [line.node for lines in self._codes.values() for line in lines.values() if line.node]
        return Code(
            function,
            len(inputs),
            len(outputs),
            not self._program.defaults,
            main.is_generator,
            bool(self._foreign),
            any(unit.is_awaited for unit in self._program.root.units),
            self._has_native,
            tuple(nodes),
            self._codes,
            quick,
        )

    # Names.

    def _text(self, value: Value, function: _Function | None = None) -> str:
        return f"v{self._at.names[value]}" if value.constant is NOTHING else self._global("c", value.constant, function)

    def _global(self, kind: str, thing: object, function: _Function | None = None) -> str:
        name = self._global_names.get(id(thing))
        if name is None:
            name = self._global_names[id(thing)] = f"{kind}{len(self._global_names)}"
            self._globals[name] = thing  # which keeps the id its own
        if function is not None and function.loops:
            function.held[name] = None
        return name

    def _read(self, function: _Function, value: Value) -> str:
        if value.constant is NOTHING and self._at.made[value] < function.start:
            function.reads[value] = None
        return self._text(value, function)

    def _write(self, function: _Function, value: Value, indent: int) -> str:
        function.writes[value] = min(indent, function.writes.get(value, indent))
        return self._text(value)

    def _release(self, position: int, function: _Function, indent: int) -> None:
        """Let go of what is taken last at *position*."""
        dying = self._at.dying.get(position)
        if dying:
            function.add(indent, f"{' = '.join(f'v{name}' for name in dying)} = None")

    # Blocks.

    def _block(self, block: Block, function: _Function, indent: int) -> Stage[None]:
        """Write *block*, in functions of their own where it is long or deep down."""
        sizes = self._at.size
        if indent > _MAX_INDENT:
            yield from self._outline(block.statements, function, indent)
            return
        if sum(sizes[statement] for statement in block.statements) <= MAX_STATEMENTS:
            for statement in block.statements:
                yield from self._statement(statement, function, indent)
            return
        group: list[Statement] = []
        total = 0
        for statement in block.statements:
            size = sizes[statement]
            if group and total + size > MAX_STATEMENTS:
                yield from self._outline(group, function, indent)
                group, total = [], 0
            if size > MAX_STATEMENTS:
                yield from self._statement(statement, function, indent)
            else:
                group.append(statement)
                total += size
        if group:
            yield from self._outline(group, function, indent)

    def _outline(self, group: Sequence[Statement], function: _Function, indent: int) -> Stage[None]:
        """Write *group* as a function of its own, and the call of it."""
        if not group:
            return
        at, end = self._at, self._at.end[group[-1]]
        inner = _Function(f"part{len(self._codes)}", at.start[group[0]])
        for statement in group:
            yield from self._statement(statement, inner, 1)
        kept = [value for value in inner.writes if at.last[value] > end]
        for value in kept:
            if inner.writes[value] > 1:  # it may not be written
                inner.unsure[self._text(value)] = None
                if at.made[value] < inner.start:
                    inner.reads[value] = None
                    function.unsure[self._text(value)] = None
        takes = list(dict.fromkeys(self._text(value) for value in inner.reads))
        function.unsure.update(dict.fromkeys(name for name in inner.unsure if name in takes))
        gives = list(dict.fromkeys(self._text(value) for value in kept))
        if gives:
            inner.add(1, f"return {', '.join(gives)}")
        name = f"p{len(self._codes)}"
        yield
        self._globals[name] = self._compile(inner, takes)
        yield
        for value in inner.reads:
            self._read(function, value)
        for value in kept:
            self._write(function, value, indent)
        call = f"{name}({', '.join(takes)})"
        if inner.is_generator:
            call = f"yield from {call}"
            function.is_generator = True
        function.add(indent, f"{', '.join(gives)} = {call}" if gives else call)

    def _compile(self, function: _Function, inputs: Sequence[str]) -> FunctionType:
        file = f"{self._file}.{len(self._codes)}>"
        for name in function.unsure:
            if name not in inputs:
                function.source.insert(0, f" {name} = None")
                function.lines.insert(0, _PLAIN)
        body = function.source or [" pass"]
        takes = [*inputs, *[f"{name}={name}" for name in function.held]]
        text = "\n".join([f"def {function.name}({', '.join(takes)}):", *body, ""])
        module = compile(text, file, "exec", dont_inherit=True)
        code = next(each for each in module.co_consts if isinstance(each, CodeType))
        self._codes[code] = dict(enumerate(function.lines, 2))
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        return FunctionType(code, self._globals, argdefs=tuple(self._globals[name] for name in function.held))

    # Statements.

    def _statement(self, statement: Statement, function: _Function, indent: int) -> Stage[None]:
        self._pause(statement, function, indent)
        if isinstance(statement, Call):
            self._call(statement, function, indent)
        elif isinstance(statement, Move):
            if self._in_place is not None:
                self._in_place.note_move(statement.source)
            source, target = self._read(function, statement.source), self._write(function, statement.target, indent)
            if source != target:
                function.add(indent, f"{target} = {source}")
        elif isinstance(statement, Branch):
            yield from self._branch(statement, function, indent)
        elif isinstance(statement, Piece):
            yield from self._piece(statement, function, indent)
        else:
            yield from self._repeat(statement, function, indent)
        if not (isinstance(statement, Call) and statement.is_awaited):  # which lets go before it is awaited
            self._release(self._at.end[statement], function, indent)
        self._num_written += 1
        if not self._num_written % FEW:
            yield

    def _pause(self, statement: Statement, function: _Function, indent: int) -> None:
        """Yield before *statement*, if enough has been done since that was done last."""
        work = self._work.of(statement)
        if self._pauses and self._work_done and self._work_done + work > self._most_work:
            function.add(indent, "yield")
            function.is_generator = True
            self._work_done = 0
        if not isinstance(statement, (Branch, Piece)):  # what is in it counts
            self._work_done = min(MAX_WORK, self._work_done + work)

    def _call(self, call: Call, function: _Function, indent: int) -> None:
        if call.is_foreign and not call.is_awaited:
            self._foreign.append(call.node)
        arguments = [self._read(function, value) for value in call.inputs]
        targets = [self._write(function, value, indent) for value in call.outputs]
        if self._in_place is not None and self._in_place.overwrites(call):
            if id(call.kernel) not in OPERATORS:
                name = self._global("k", overwriting(call.kernel), function)
                function.add(indent, f"{targets[0]} = {name}({', '.join(arguments)})", call, arguments)
                return
            function.add(indent, f"{arguments[0]} {OPERATORS[id(call.kernel)]}= {arguments[1]}", call, arguments)
            if targets[0] != arguments[0]:
                function.add(indent, f"{targets[0]} = {arguments[0]}")
            return
        text = self._expression(call, arguments, function)
        if call.is_awaited:
            text = self._await(call, text, function, indent)
            arguments = []
        if call.returns_tuple:
            if call.is_foreign:
                text = f"checked({self._global('n', call.node)}, {len(targets)}, {text})"
            if targets:
                text = f"[{', '.join(targets)}] = {text}"
        else:
            text = f"{targets[0]} = {text}"
        function.add(indent, text, call, arguments)

    def _expression(self, call: Call, arguments: Sequence[str], function: _Function) -> str:
        return expression(call.kernel, arguments, lambda: self._global("k", call.kernel, function))

    def _await(self, call: Call, text: str, function: _Function, indent: int) -> str:
        """Write the call that is *text*; what gives its outputs.  It alone has the inputs that nobody takes again."""
        function.add(indent, f"w = {text}", call)
        self._release(self._at.end[call], function, indent)
        function.is_generator = True
        self._work_done = 0
        return f"(yield {self._global('t', call.ticket)}, w)"

    def _branch(self, branch: Branch, function: _Function, indent: int) -> Stage[None]:
        pred = self._read(function, branch.pred)
        sides = [(side, block) for side, block in sorted(branch.sides.items(), reverse=True) if block.statements]
        for position, (side, block) in enumerate(sides):
            if branch.pred.is_number:
                function.add(indent, f"{'elif' if position else 'if'} {pred} == {side}:")
            else:
                function.add(indent, "else:" if position else f"if {pred}:" if side else f"if not {pred}:")
            length = len(function.source)
            yield from self._block(block, function, indent + 1)
            if len(function.source) == length:  # all that it does has been done by name
                function.add(indent + 1, "pass")

    def _piece(self, piece: Piece, function: _Function, indent: int) -> Stage[None]:
        """Write a call of native code, as soon as there is any, and what else is done."""
        call = yield from self._native_call(piece, 1, function, indent)
        if call is not None:
            name, arguments, targets = call
            is_python, gives = f"{name} is None or (n := {name}({arguments})) is None", f"{targets} = n"
            function.add(indent, f"if {is_python}:")
            yield from self._block(piece.block, function, indent + 1)
            function.add(indent, "else:")
            function.add(indent + 1, gives)
        else:
            yield from self._block(piece.block, function, indent)

    def _native_call(
        self, statement: Piece | Repeat, rounds: int, function: _Function, indent: int
    ) -> Stage[tuple[str, str, str] | None]:
        """The name of what is called in place of *statement*, with what it is called, and what it gives."""
        if self._native is None:
            return None
        self._num_native += 1
        name = f"x{self._num_native}"
        names = self._globals

        def replace(function: Callable[..., Any] | None) -> None:
            names[name] = function

        part = yield from part_of(statement, self._at, rounds, replace)
        if part is None:
            return None
        replace(self._native(part))
        self._has_native = True
        self._num_outside += function.name == _MAIN and indent == 1
        takes = [self._read(function, value) for value in part.takes]
        gives = [self._write(function, value, indent) for value in part.gives]
        for value, text in zip(part.takes, takes, strict=True):
            if value.unit is not None and value.unit.liveness:  # it may not have been made
                function.unsure[text] = None
        return name, ", ".join(takes), ", ".join(gives)

    def _repeat(self, repeat: Repeat, function: _Function, indent: int) -> Stage[None]:
        loop = repeat.loop
        function.is_generator = True
        rounds, work = self._work.of_rounds(repeat)
        self._num_loops += 1
        number = self._num_loops
        names = LoopNames(loop.name, f"b{number}", f"i{number}")
        self._globals[f"R{rounds}"] = range(rounds)
        self._assign([(carried.value, carried.first) for carried in loop.carried], function, indent)
        self._release(self._at.start[repeat], function, indent)
        native = None
        if repeat.may_be_native:
            native = yield from self._native_call(repeat, rounds, function, indent)
        span = f"R{rounds}"
        if native is not None:
            first = max(1, min(rounds, FIRST_WORK * rounds // work))
            self._globals[f"R{first}"] = range(first)
            span = f"r{number}"
            function.add(indent, f"{span} = R{first}")
        function.add(indent, f"{names.base} = 0")
        function.add(indent, "while 1:")
        function.add(indent + 1, f"for {names.index} in {span}:")
        function.loops.append(names)
        self._work_done = 0
        yield from self._condition(repeat, function, indent + 2)
        yield from self._block(repeat.body, function, indent + 2)
        self._assign([(carried.value, following(carried)) for carried in loop.carried], function, indent + 2)
        self._release(self._at.end[repeat] - 1, function, indent + 2)
        function.loops.pop()
        self._work_done = work
        function.add(indent + 1, "else:")
        function.add(indent + 2, f"{names.base} += {names.index} + 1" if native else f"{names.base} += {rounds}")
        if native is None:
            function.add(indent + 2, "yield")
        else:
            name, arguments, targets = native
            function.add(indent + 2, f"goes_on = {name} is not None")
            function.add(indent + 2, "while goes_on:")
            function.add(indent + 3, f"goes_on, n, {targets} = {name}({arguments})")
            function.add(indent + 3, f"{names.base} += n")
            function.add(indent + 3, "if goes_on: yield")
            function.add(indent + 2, f"if {span} is R{rounds}: yield")
            function.add(indent + 2, f"{span} = R{rounds}")
        function.add(indent + 2, "continue")
        function.add(indent + 1, "break")

    def _condition(self, repeat: Repeat, function: _Function, indent: int) -> Stage[None]:
        """Write the head of *repeat*, and that a round begins only where its condition holds."""
        condition, statements = repeat.loop.condition, repeat.head.statements
        assert condition is not None
        last = statements[-1] if statements else None
        if (
            isinstance(last, Call)
            and last.outputs == [condition]
            and self._at.num_uses[condition] == 1
            and not (last.returns_tuple or last.is_foreign or last.is_awaited)
            and self._at.end[last] not in self._at.dying
        ):
            yield from self._block(Block(statements[:-1]), function, indent)
            arguments = [self._read(function, value) for value in last.inputs]
            text = self._expression(last, arguments, function)
            function.add(indent, f"if not {text}: break", last, arguments)
        else:
            yield from self._block(repeat.head, function, indent)
            function.add(indent, f"if not {self._read(function, condition)}: break")

    def _assign(self, pairs: Iterable[tuple[Value, Value]], function: _Function, indent: int) -> None:
        """Give variables of a loop their values, all at once."""
        texts = [(self._write(function, to, indent), self._read(function, value)) for to, value in pairs]
        texts = [(to, value) for to, value in texts if to != value]
        if texts:
            left, right = zip(*texts, strict=True)
            function.add(indent, f"{', '.join(left)} = {', '.join(right)}")
