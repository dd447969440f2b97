"""What must hold of a loop whose condition comes between what every round does and what only further rounds do."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from asyncexec.regions.program import Call, Liveness, Loop, Move, UnstructuredError, Value


def check_loop(loop: Loop, invariants: AbstractSet[Liveness]) -> None:
    """UnstructuredError unless *loop*, whose constants are live as *invariants* say, can be a Python ``while``.

    What is live whatever the condition says must not wait for what is live only if it holds.
    """
    assert loop.condition is not None
    for unit in loop.body.units:
        sides = {side for pred, side in unit.liveness if pred is loop.condition}
        if 0 in sides:
            raise UnstructuredError(f"frame {loop.name!r} does something when it ends")
        if not sides and any((loop.condition, 1) in before.liveness for before in unit.after):
            raise UnstructuredError(f"frame {loop.name!r} goes on where it may have ended")
    if any(not liveness <= loop.liveness for liveness in invariants):
        raise UnstructuredError(f"a constant of frame {loop.name!r} is live under conditions of its own")
    if any(liveness != loop.liveness for liveness in invariants):
        _check_rounds(loop)


def _check_rounds(loop: Loop) -> None:
    """What takes constants alone would run even where the loop does not."""
    runs_in_rounds: set[Value] = {carried.value for carried in loop.carried}
    for unit in loop.body.units:
        if isinstance(unit, Call):
            if not unit.liveness and runs_in_rounds.isdisjoint(unit.inputs):
                raise UnstructuredError(f"{unit.node.name!r} runs even where its loop does not")
            runs_in_rounds.update(unit.outputs)
        elif isinstance(unit, Move):
            runs_in_rounds.add(unit.target)
