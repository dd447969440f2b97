"""Which mutants a module has, and what their code does."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.mutation import toy
from tests.mutation.operators import Mutant, mutants_of, mutated_code, sample
from tests.mutation.runner import LineTracer, apply, is_repeated, live_functions, spans

SOURCE = dedent(
    '''
    LIMIT = 3  # no function: left alone

    def check(x, low=1):
        """Words."""
        assert x > 0, f"{x + 1}"
        if x < low and x != 5:
            raise ValueError(x + 1)
        return x + 2

    class Owner:
        async def act(self):
            """Words."""
            self.count += 1
            self.tell("a", True)
    '''
)


def test_what_can_be_changed() -> None:
    found = [f"{one.function} {one.line} {one.operator}#{one.number}" for one in mutants_of(SOURCE, "m.py")]
    assert found == [
        "check 7 negate condition#0",
        "check 7 swap and/or#0",
        "check 7 swap comparison#0",
        "check 7 swap comparison#1",
        "check 7 change constant#0",
        "check 8 drop statement#0",
        "check 9 return None#0",
        "check 9 swap plus/minus#0",
        "check 9 change constant#1",
        "Owner.act 14 do nothing#0",
        "Owner.act 14 swap plus/minus#0",
        "Owner.act 14 drop statement#0",
        "Owner.act 14 change constant#0",
        "Owner.act 15 drop call#0",
        "Owner.act 15 change constant#1",
    ]


@pytest.mark.parametrize(
    ("mutant", "of_three", "of_minus_one"),
    [
        ("negate condition#0", ValueError, 1),
        ("swap and/or#0", ValueError, ValueError),
        ("swap comparison#0", 5, ValueError),
        ("drop statement#0", 5, 1),
        ("return None#0", None, ValueError),
        ("swap plus/minus#0", 1, ValueError),
        ("change constant#1", 6, ValueError),
    ],
)
def test_what_a_mutant_does(mutant: str, of_three: Any, of_minus_one: Any) -> None:
    source = SOURCE.replace("    assert", "    #")
    (chosen,) = [one for one in mutants_of(source, "m.py") if mutant == f"{one.operator}#{one.number}"][:1]
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    function = namespace["check"]
    function.__code__ = mutated_code(source, chosen, "m.py")
    for argument, expected in ((3, of_three), (-1, of_minus_one)):
        if expected is ValueError:
            with pytest.raises(ValueError, match=str(argument + 1)):
                function(argument)
        else:
            assert function(argument) == expected


def test_the_keys_of_a_function_do_not_depend_on_the_others() -> None:
    before, after = (
        {(one.key, one.text, one.rank(7)) for one in mutants_of(text, "m.py") if one.function == "check"}
        for text in (SOURCE, "def other(x):\n    return x < 1\n\n" + SOURCE)
    )
    assert before == after
    assert len({one.key for one in mutants_of(SOURCE, "m.py")}) == len(mutants_of(SOURCE, "m.py"))


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    mutants = mutants_of(SOURCE, "m.py")
    assert sample(mutants, 5, 1) == sample(list(reversed(mutants)), 5, 1) != sample(mutants, 5, 2)
    assert set(sample(mutants, None, 1)) == set(mutants)


PATH = Path(toy.__file__)
TEXT = PATH.read_text(encoding="utf-8")
ROOT = PATH.parents[2]
KEY = str(PATH.relative_to(ROOT))


def toy_mutants(function: str) -> list[Mutant]:
    return [one for one in mutants_of(TEXT, KEY) if one.function == function]


@pytest.mark.parametrize("name", ["Counter.count", "Counter.total", "Counter.of", "counting", "cached"])
def test_a_function_is_changed_where_it_lives_and_with_whatever_it_is_wrapped_in(name: str) -> None:
    mutant = next(one for one in toy_mutants(name) if one.operator in ("do nothing", "return None"))
    code = mutated_code(TEXT, mutant, str(PATH))
    (function,) = live_functions(toy, name, code)
    before = function.__code__
    try:
        apply(mutant, TEXT, ROOT)
        assert function.__code__ == code != before
    finally:
        function.__code__ = before


def test_which_lines_of_the_functions_with_mutants_run() -> None:
    tracer = LineTracer(spans([*toy_mutants("Counter.count"), *toy_mutants("cached")], {KEY: TEXT}, ROOT))
    with tracer:
        toy.Counter().count(0)
        toy.Counter.of(3)
    lines = TEXT.splitlines()
    assert [lines[number - 1].strip() for number in sorted(tracer.lines[KEY])] == [
        "if amount:",
        "self.seen += amount",
    ]


def test_a_test_is_left_out_where_it_repeats_another_on_the_second_loop() -> None:
    names = ["test_a[asyncio]", "test_a[uvloop]", "test_b[uvloop-3]", "test_c"]
    assert [name for name in names if is_repeated(name, names)] == ["test_a[uvloop]"]
