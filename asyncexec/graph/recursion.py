"""Functions that call themselves, by whatever way: which of them end, and which calls stay calls.

A call of a function by name or by PartitionedCall is made in any case, as is the condition of a While.  A branch of an
If or Case is called if it is the one that is taken, the body of a loop if it goes round.  So a function *can end* if

* all functions can end that it calls in any case, and
* of each If and Case in it, a branch can end.

What cannot end is refused when it is loaded.  The rest may end or not, as a loop may.

Where functions are written out, those that stay calls are the ones that a walk over the library comes back to: without
them, no way leads from a function to itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from asyncexec.framework.cooperative import STRIDE, Stage, run_at_once
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import AttrValue, FunctionDef, NodeDef, make_attr

_BRANCHES: Final = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
_LOOPS: Final = frozenset({"While", "StatelessWhile", "For"})
_SHOWN: Final = 20  # functions of a way

Library: TypeAlias = Mapping[str, FunctionDef]


def functions_named_by(node: NodeDef) -> Iterator[str]:
    """The op type of *node*, and the functions that its attrs name."""
    yield node.op
    yield from _named(node.attr.values())


def _named(values: Iterable[AttrValue]) -> Iterator[str]:
    pending = list(values)
    while pending:
        value = pending.pop()
        named = [value.func] if value.func is not None else []
        if value.list is not None:
            named += value.list.func
        for func in named:
            yield func.name
            pending += func.attr.values()


def _called_by(function: FunctionDef) -> Iterator[str]:
    """All that *function* may call."""
    for node in function.node_def:
        yield from functions_named_by(node)
    yield from _named(attr.default_value for attr in function.signature.attr if attr.default_value is not None)


def recursive_functions(functions: Library, starts: Iterable[str]) -> Stage[set[str]]:
    """The functions that a walk from *starts* comes back to, as a stage; depth first, but without recursion of ours."""
    found: set[str] = set()
    done: set[str] = set()
    around: set[str] = set()  # the functions on the path
    steps = 0
    for start in starts:
        path = [] if start in done else [(start, _called_by(functions[start]))]
        around.update(name for name, _ in path)
        while path:
            name, calls = path[-1]
            called = next((other for other in calls if other in functions and other not in done), None)
            if called is None:
                done.add(name)
                around.remove(name)
                path.pop()
            elif called in around:
                found.add(called)
            else:
                around.add(called)
                path.append((called, _called_by(functions[called])))
            steps += 1
            if not steps % STRIDE:
                yield
    return found


def check_recursion(library: Library, existing: Library) -> None:
    """InvalidArgumentError where a function of *library*, added to those *existing*, calls itself without end."""
    functions = {**existing, **library}
    if run_at_once(recursive_functions(functions, library)):
        _check_ends(functions, library)


def _check_ends(functions: Library, starts: Iterable[str]) -> None:
    """InvalidArgumentError where one of *starts* cannot end."""
    endless = functions.keys() - _ending(functions)
    first = next((name for name in starts if name in endless), None)
    if first is not None:
        way = _endless_way(first, functions, endless)
        shown = way if len(way) <= _SHOWN else [*way[: _SHOWN - 2], "...", way[-1]]
        raise InvalidArgumentError(
            f"recursion through {way[0]}: {' -> '.join(shown)}, without end",
            hint="call it in a branch of an If or Case that is not always taken",
        )


@dataclass(slots=True)
class _Need:
    """Something that holds once *missing* others do; *waiting* are those that this one is missing to."""

    missing: int = 0
    waiting: list[_Need] = field(default_factory=list)

    def needs(self, other: _Need) -> None:
        self.missing += 1
        other.waiting.append(self)


def _ending(functions: Library) -> set[str]:
    """The functions that can end."""
    ends = {name: _Need() for name in functions}
    for name, function in functions.items():
        for node in function.node_def:
            required, branches = _calls_of(node, functions)
            for called in required:
                ends[name].needs(ends[called])
            if branches and all(branches):  # else one of them needs nothing
                _add_choice(ends[name], [[ends[called] for called in branch] for branch in branches])
    pending = [need for need in ends.values() if not need.missing]
    while pending:
        for waiting in pending.pop().waiting:
            waiting.missing -= 1
            if not waiting.missing:
                pending.append(waiting)
    return {name for name, need in ends.items() if need.missing <= 0}


def _add_choice(need: _Need, branches: Iterable[Iterable[_Need]]) -> None:
    """Let *need* need all of one of *branches*."""
    choice = _Need(1)  # the first branch that can end is enough: another one takes it below 0, which says nothing
    need.needs(choice)
    for branch in branches:
        taken = _Need(0, [choice])
        for called in branch:
            taken.needs(called)


def _calls_of(node: NodeDef, functions: Collection[str]) -> tuple[list[str], list[list[str]]]:
    """The functions that *node* calls in any case; and if it makes a choice, those that each branch calls."""
    if node.op in _BRANCHES:
        return [], [_known(_named([branch]), functions) for branch in _branches_of(node)]
    if node.op in _LOOPS:
        return _known(_named(value for name, value in node.attr.items() if name != "body"), functions), []
    return _known(functions_named_by(node), functions), []


def _known(names: Iterable[str], functions: Collection[str]) -> list[str]:
    return [name for name in names if name in functions]


def _branches_of(node: NodeDef) -> list[AttrValue]:
    if node.op not in ("Case", "StatelessCase"):
        return [value for name, value in node.attr.items() if name in ("then_branch", "else_branch")]
    branches = node.attr.get("branches")
    listed = () if branches is None or branches.list is None else branches.list.func
    return [make_attr("func", func) for func in listed]


def _endless_way(start: str, functions: Library, endless: Collection[str]) -> list[str]:
    """A way from a function back to itself, on which none can end."""
    way: dict[str, None] = {}
    name = start
    while name not in way:
        way[name] = None
        name = _endless_call(functions[name], functions, endless)
    names = list(way)
    return [*names[names.index(name) :], name]


def _endless_call(function: FunctionDef, functions: Library, endless: Collection[str]) -> str:
    """A function that *function* calls, and for which it cannot end."""
    for node in function.node_def:
        required, branches = _calls_of(node, functions)
        blocked = [[name for name in branch if name in endless] for branch in branches]
        wanted = [name for name in required if name in endless] or (blocked[0] if all(blocked) and blocked else [])
        if wanted:
            return wanted[0]
    raise AssertionError("a function that cannot end calls one that cannot")


class CalledFunctions:
    """The functions of a graph that stay calls: those that are not to be inlined, and the recursive ones.

    Args:
        functions: of the graph; only_recursive: whether only the recursive ones stay.
    """

    def __init__(self, functions: Library, *, only_recursive: bool = False) -> None:
        self._functions = functions
        self._only_recursive = only_recursive
        self._num_read = 0
        self._names: frozenset[str] = frozenset()

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def update(self) -> Stage[None]:
        """Read the functions again, if there are more of them, as a stage.

        Raises:
            InvalidArgumentError: one of them cannot end.
        """
        functions = dict(self._functions)
        if len(functions) == self._num_read:
            return
        names = yield from recursive_functions(functions, functions)
        if names:
            _check_ends(functions, functions)
        if not self._only_recursive:
            names.update(name for name, function in functions.items() if _is_not_inlined(function))
        self._names, self._num_read = frozenset(names), len(functions)


def _is_not_inlined(function: FunctionDef) -> bool:
    """Whether *function* is to stay a call; one that TensorFlow keeps only to have XLA compile it whole is not."""
    noinline, for_xla = map(function.attr.get, ("_noinline", "_XlaMustCompile"))
    return noinline is not None and noinline.b is True and (for_xla is None or for_xla.b is not True)
