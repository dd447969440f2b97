"""Which functions end, and which stay calls."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from random import Random
from typing import Any

import pytest

from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import AttrDefProto, FunctionDef, NodeDef, make_attr
from asyncexec.framework.graph_def import NameAttrList as NameAttrListProto
from asyncexec.graph.recursion import CalledFunctions, check_recursion, functions_named_by, recursive_functions
from tests.optimization.function_text import function, node
from tests.optimization.recursive_functions import noinline


def library(**bodies: list[NodeDef]) -> dict[str, FunctionDef]:
    return {name: function(f"{name}(x: float32) -> y: float32", *nodes) for name, nodes in bodies.items()}


def calls(*names: str) -> list[NodeDef]:
    return [node(f"c{i}", name, "x") for i, name in enumerate(names)]


def either(then: str, other: str, op: str = "If") -> list[NodeDef]:
    return [node("i", op, "x x", then_branch=then, else_branch=other)]


def case(*branches: str) -> list[NodeDef]:
    return [node("i", "Case", "x x", branches=list(branches))]


def loop(cond: str, body: str) -> list[NodeDef]:
    return [node("w", "While", "x", cond=cond, body=body)]


NEG = [node("n", "Neg", "x")]
ENDS: dict[str, dict[str, list[NodeDef]]] = {
    "a branch": {"F": either("G", "F"), "G": NEG},
    "the other branch": {"F": either("F", "G", "StatelessIf"), "G": NEG},
    "a branch that the library does not have": {"F": either("F", "Nobody")},
    "one of many": {"F": case("F", "F", "G"), "G": NEG},
    "a body": {"F": loop("G", "F"), "G": NEG},
    "a body of a For": {"F": [node("w", "For", "x", body="F")]},
    "by way of others": {"F": calls("G"), "G": either("H", "N"), "H": calls("F"), "N": NEG},
    "another that ends by a branch": {"F": either("F", "G"), "G": either("F", "N"), "N": NEG},
}
ENDLESS: dict[str, tuple[dict[str, list[NodeDef]], str]] = {
    "itself": ({"F": calls("F")}, "F: F -> F"),
    "both branches": ({"F": either("F", "F")}, "F: F -> F"),
    "both branches, by way of others": ({"F": either("G", "H"), "G": calls("F"), "H": calls("G")}, "F: F -> G -> F"),
    "a condition": ({"F": loop("F", "G"), "G": NEG}, "F: F -> F"),
    "a call beside a branch": ({"F": [*either("G", "F"), *calls("F")], "G": NEG}, "F: F -> F"),
    "from outside": ({"A": calls("F"), "F": calls("G"), "G": calls("F")}, "F: F -> G -> F"),
    "a branch that leads to what has no end": ({"F": either("G", "G"), "G": calls("G")}, "G: G -> G"),
    "a function of datasets": ({"F": [node("m", "MapDataset", "x", f="F")]}, "F: F -> F"),
}


@pytest.mark.parametrize("bodies", ENDS.values(), ids=ENDS)
def test_what_can_end(bodies: dict[str, list[NodeDef]]) -> None:
    check_recursion(library(**bodies), {})


@pytest.mark.parametrize(("bodies", "way"), ENDLESS.values(), ids=ENDLESS)
def test_what_cannot_end(bodies: dict[str, list[NodeDef]], way: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"recursion through {way}, without end") as caught:
        check_recursion(library(**bodies), {})
    assert caught.value.hint == "call it in a branch of an If or Case that is not always taken"


def test_functions_that_were_there_before_count() -> None:
    check_recursion(library(F=calls("G")), library(G=NEG))
    with pytest.raises(InvalidArgumentError, match="F: F -> G -> F"):
        check_recursion(library(F=calls("G")), library(G=calls("F")))


def test_a_long_way_is_shortened() -> None:
    chain = {f"F{i}": calls(f"F{(i + 1) % 5_000}") for i in range(5_000)}
    with pytest.raises(InvalidArgumentError, match=r"F0: F0 -> F1 -> .*F17 -> \.\.\. -> F0, without end"):
        check_recursion(library(**chain), {})


def recursive(functions: Mapping[str, FunctionDef]) -> set[str]:
    return run_at_once(recursive_functions(functions, functions))


def test_one_function_of_a_cycle_is_recursive() -> None:
    assert recursive(library(F=calls("G"), G=calls("H"), H=calls("F"), N=NEG)) == {"F"}
    assert recursive(library(F=calls("G", "F"), G=calls("N"), N=NEG)) == {"F"}
    assert recursive(library(F=calls("G"), G=NEG)) == set()


def test_functions_in_attrs_of_functions_and_in_defaults_are_seen() -> None:
    nested = NameAttrListProto(name="G", attr={"f": make_attr("func", NameAttrListProto(name="F"))})
    caller = NodeDef(name="c", op="PartitionedCall", attr={"f": make_attr("func", nested)})
    assert list(functions_named_by(caller)) == ["PartitionedCall", "G", "F"]
    assert recursive(library(F=[caller], G=NEG)) == {"F"}
    (plain,) = library(F=NEG).values()
    default = AttrDefProto(name="f", type="func", default_value=make_attr("func", NameAttrListProto(name="F")))
    signature = plain.signature.model_copy(update={"attr": (default,)})
    assert recursive({"F": plain.model_copy(update={"signature": signature})}) == {"F"}


@pytest.mark.parametrize("seed", range(30))
def test_without_them_nothing_leads_back(seed: int) -> None:
    random = Random(seed)
    names = [f"F{i}" for i in range(random.randrange(1, 12))]
    called = {name: [other for other in names if random.random() < 0.25] for name in names}
    cut = recursive(library(**{name: calls(*others) for name, others in called.items()}))
    left = {name: {other for other in others if other not in cut} for name, others in called.items() if name not in cut}
    while left:
        ends = [name for name, others in left.items() if not others]
        assert ends, left
        left = {name: others - set(ends) for name, others in left.items() if name not in ends}


@pytest.mark.parametrize("seed", range(30))
def test_what_can_end_by_trying_all_choices(seed: int) -> None:
    """A function can end if there is a choice for each function with which nothing leads back to it."""
    random = Random(seed)
    names = [f"F{i}" for i in range(random.randrange(1, 6))]
    choices = {name: [random.choices(names, k=random.randrange(3)) for _ in range(2)] for name in names}
    ends = {name for name in names for taken in product((0, 1), repeat=len(names)) if _ends(name, choices, taken, ())}
    parts: dict[str, list[NodeDef]] = {}
    for name, (then, other) in choices.items():
        parts[name] = either(f"{name}then", f"{name}else")
        parts[f"{name}then"], parts[f"{name}else"] = calls(*then), calls(*other)
    if ends == set(names):
        check_recursion(library(**parts), {})
    else:
        with pytest.raises(InvalidArgumentError, match="without end"):
            check_recursion(library(**parts), {})


def _ends(name: str, choices: Any, taken: tuple[int, ...], path: tuple[str, ...]) -> bool:
    if name in path:
        return False
    called = choices[name][taken[list(choices).index(name)]]
    return all(_ends(other, choices, taken, (*path, name)) for other in called)


def test_a_library_is_read_again_when_there_is_more_of_it() -> None:
    functions = library(F=either("F", "N"), N=NEG)
    called = CalledFunctions(functions)
    run_at_once(called.update())
    assert "F" in called
    assert "N" not in called
    functions |= {"M": noinline(library(M=NEG)["M"])}
    run_at_once(called.update())
    assert "M" in called


def test_a_large_library_is_read_in_time() -> None:
    """10,000 functions, each with a choice between the next two; the last one ends."""
    count = 10_000
    parts = {f"F{i}": either(f"F{(i + 1) % count}", f"F{(i + 2) % count}") for i in range(count)}
    parts["F7"] = NEG
    check_recursion(library(**parts), {})
