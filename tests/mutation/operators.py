"""The mutants of a module: small changes of its functions, each of which some test should notice.

A mutant is compiled from the syntax tree, so all lines keep their numbers.  What it changes is inside of a function:
constants of the module and defaults of parameters are left alone, and so are assertions and the texts of errors.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import CodeType
from typing import Any, Final, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
# Changes the tree at a node: the node to put in its place.
Change: TypeAlias = Callable[[Any], ast.AST]

_SWAPPED: Final[Mapping[type[ast.AST], type[ast.AST]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}
_LEFT_ALONE: Final = (ast.Assert, ast.JoinedStr, ast.arguments, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function.

    Attributes:
        path: of the module, relative to the root of the repository.
        function: its qualified name, without ``<locals>``; of a nested function, that of the outermost one.
        operator: the kind of change; number: which of that kind in the function, in the order of the text.
        line: where it is; text: what stands there.
    """

    path: str
    function: str
    operator: str
    number: int
    line: int
    text: str

    @property
    def key(self) -> str:
        """What tells it from all others, whatever changes elsewhere in the module."""
        return f"{self.path}::{self.function}::{self.operator}#{self.number}"

    def rank(self, seed: int) -> bytes:
        """Its place in a sample: mutants of code that has not changed keep theirs."""
        return blake2b(f"{seed} {self.key} {self.text}".encode(), digest_size=8).digest()

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}: {self.operator}#{self.number}: {self.text}"


def mutants_of(source: str, path: str) -> list[Mutant]:
    """The mutants of all functions in *source*, in the order of the text."""
    return [
        Mutant(path, name, operator, number, _line_of(node), _shown(source, node))
        for name, function in functions_of(ast.parse(source))
        for (operator, number), (node, _) in _changes(function).items()
    ]


def mutated_code(source: str, mutant: Mutant, filename: str) -> CodeType:
    """The code of the mutant's function, changed."""
    tree = ast.parse(source)
    for name, function in functions_of(tree):
        if name == mutant.function and (mutant.operator, mutant.number) in (found := _changes(function)):
            node, change = found[mutant.operator, mutant.number]
            made = change(copy.deepcopy(node))
            _Replacing(node, ast.fix_missing_locations(ast.copy_location(made, node))).visit(tree)
            return code_of(compile(tree, filename, "exec"), name, lines_of(function)[0])
    raise LookupError(f"there is no {mutant.key}")


def code_of(code: CodeType, name: str, first_line: int) -> CodeType:
    """The code of function *name*, which begins at *first_line*, inside of that of its module."""
    for part in name.split("."):
        inner = [one for one in code.co_consts if isinstance(one, CodeType) and one.co_name == part]
        code = next((one for one in inner if one.co_firstlineno == first_line), inner[0])
    return code


def functions_of(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """The functions of a module or class, and the methods of its classes, with their names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from functions_of(node, f"{prefix}{node.name}.")


def lines_of(function: Function) -> tuple[int, int]:
    """The first line of *function*, its decorators included, and the last."""
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    return first, function.end_lineno or function.lineno


def _changes(function: Function) -> dict[tuple[str, int], tuple[Any, Change]]:
    """What can be changed in *function*: by operator and number, the node and the change."""
    found: dict[tuple[str, int], tuple[Any, Change]] = {}
    counts: dict[str, int] = {}

    def add(operator: str, node: ast.AST, change: Change) -> None:
        number = counts[operator] = counts.get(operator, -1) + 1
        found[operator, number] = node, change

    if not _is_trivial(function):
        add("do nothing", function, _do_nothing)
    for node in _nodes(function.body):
        for operator, change in _changes_at(node):
            add(operator, node, change)
    return found


def _nodes(body: list[ast.stmt]) -> Iterator[Any]:
    """What is in the statements, in the order of the text, but for what is left alone."""
    pending: list[ast.AST] = list(reversed(body))
    while pending:
        node = pending.pop()
        if isinstance(node, _LEFT_ALONE):
            continue
        yield node
        if isinstance(node, ast.Raise):
            continue  # what it says is for people
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.AnnAssign):
            children = [child for child in children if child is not node.annotation]
        if isinstance(node, Function):
            children = list(node.body)
        pending += reversed(children)


def _changes_at(node: ast.AST) -> Iterator[tuple[str, Change]]:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "negate condition", _negate
    if isinstance(node, ast.Compare):
        yield "swap comparison", _swap_comparison
    if isinstance(node, ast.BoolOp):
        yield "swap and/or", _swap_operator
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _SWAPPED:
        yield "swap plus/minus", _swap_operator
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
        yield "change constant", _change_constant
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield "return None", lambda node: ast.Return(ast.Constant(None))
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom):
        yield "drop call", lambda node: ast.Pass()
    if isinstance(node, ast.AugAssign | ast.Delete | ast.Raise | ast.Break | ast.Continue):
        yield "drop statement", lambda node: ast.Pass()
    if isinstance(node, ast.Assign) and not any(isinstance(target, ast.Name | ast.Tuple) for target in node.targets):
        yield "drop statement", lambda node: ast.Pass()


def _negate(node: Any) -> ast.AST:
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node  # type: ignore[no-any-return]


def _swap_comparison(node: Any) -> ast.AST:
    node.ops = [_SWAPPED[type(node.ops[0])](), *node.ops[1:]]
    return node  # type: ignore[no-any-return]


def _swap_operator(node: Any) -> ast.AST:
    node.op = _SWAPPED[type(node.op)]()
    return node  # type: ignore[no-any-return]


def _change_constant(node: Any) -> ast.AST:
    return ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)


def _do_nothing(function: Any) -> ast.AST:
    """*function*, returning at once; a generator or coroutine still is one."""
    is_generator = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function))
    rest = [ast.Expr(ast.Yield())] if is_generator else []
    function.body = [ast.Return(), *rest]
    return function  # type: ignore[no-any-return]


def _is_trivial(function: Function) -> bool:
    """Whether *function* does nothing anyway, or gives something: then that is what is changed."""
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    gives = any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(function))
    return gives or all(isinstance(node, ast.Pass | ast.Return | ast.Raise) for node in body)


def _line_of(node: Any) -> int:
    """A line that runs when *node* does: of a function, the first of its body."""
    if not isinstance(node, Function):
        return node.lineno  # type: ignore[no-any-return]
    first, *rest = node.body
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and rest
    return rest[0].lineno if is_docstring else first.lineno


def _shown(source: str, node: ast.AST) -> str:
    return source.splitlines()[node.lineno - 1].strip()  # type: ignore[attr-defined]


class _Replacing(ast.NodeTransformer):
    """Puts *made* in the place of *node*."""

    def __init__(self, node: ast.AST, made: ast.AST) -> None:
        self._node = node
        self._made = made

    def visit(self, node: ast.AST) -> Any:
        return self._made if node is self._node else self.generic_visit(node)


def sample(mutants: list[Mutant], count: int | None, seed: int) -> list[Mutant]:
    """*count* of *mutants* (None: all), the same ones for the same *seed*."""
    return sorted(mutants, key=lambda mutant: mutant.rank(seed))[:count]


def sources(root: Path, folders: list[str]) -> dict[str, str]:
    """The modules in *folders* and their text, by path."""
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in paths}
