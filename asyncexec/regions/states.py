"""What is known of the tensors and nodes of a graph while its structure is found."""

from __future__ import annotations

from typing import Final, NamedTuple

from asyncexec.regions.program import Liveness, Unit, Value


class State(NamedTuple):
    """A tensor: its value, when it is live, and what else comes before who takes it."""

    value: Value
    liveness: Liveness
    after: Unit | None = None


class Activation(NamedTuple):
    """What those wait for that have a control edge from a node, and when it runs."""

    after: Unit | None
    liveness: Liveness


NEVER: Final = Value()  # of what is dead whatever happens
