"""How cuDNN's recurrent networks keep their parameters: all matrices in one vector, then all biases.

A network has *layers*, each with one direction or two.  One layer in one direction has a matrix for each gate that
meets the input, another that meets the state, the same of biases, and with a projection one matrix more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError

# Gates: of an LSTM input, forget, new memory, output; of a GRU reset, update, new memory.
GATES: Final = {b"lstm": 4, b"gru": 3, b"rnn_relu": 1, b"rnn_tanh": 1}
_MOST: Final = 2**40  # elements
_MOST_LAYERS: Final = 2**16


@dataclass(frozen=True, slots=True)
class Network:
    """The sizes of a network.

    Attributes:
        skips_input: whether the input meets the gates of the first layer as it is.
        num_proj: the size of the projected state of an LSTM; 0 for none.
    """

    mode: bytes
    num_layers: int
    num_directions: int
    num_units: int
    input_size: int
    skips_input: bool
    num_proj: int

    @property
    def state_size(self) -> int:
        """The size of what a layer gives in one direction."""
        return self.num_proj or self.num_units

    @property
    def num_gates(self) -> int:
        """How many gates a cell has."""
        return GATES[self.mode]

    def matrix_shapes(self, layer: int) -> list[tuple[int, int]]:
        """The shapes of the matrices of *layer* in one direction: for the input, for the state, for the projection."""
        size = self.input_size if layer == 0 else self.state_size * self.num_directions
        width = 0 if layer == 0 and self.skips_input else size
        shapes = [(self.num_units, width)] * self.num_gates + [(self.num_units, self.state_size)] * self.num_gates
        return [*shapes, (self.num_proj, self.num_units)] if self.num_proj else shapes

    def all_matrix_shapes(self) -> list[tuple[int, int]]:
        """The shapes of all matrices, in their order."""
        layers = range(self.num_layers)
        return [shape for layer in layers for _ in range(self.num_directions) for shape in self.matrix_shapes(layer)]

    @property
    def num_biases(self) -> int:
        """How many biases there are, each of *num_units* numbers."""
        return 2 * self.num_gates * self.num_layers * self.num_directions

    @property
    def num_params(self) -> int:
        """How many numbers all parameters are."""
        return sum(map(math.prod, self.all_matrix_shapes())) + self.num_biases * self.num_units

    def split(self, params: Array) -> tuple[list[Array], list[Array]]:
        """The matrices and biases in *params*; InvalidArgumentError unless it has just these."""
        if np.ndim(params) != 1 or len(params) != self.num_params:
            raise InvalidArgumentError(
                f"params must be a vector of {self.num_params} numbers for this network, not of shape "
                f"{list(np.shape(params))}"
            )
        matrices, place = [], 0
        for shape in self.all_matrix_shapes():
            matrices.append(params[place : place + math.prod(shape)].reshape(shape))
            place += math.prod(shape)
        return matrices, list(params[place:].reshape(self.num_biases, self.num_units))


def network_of(attrs: Mapping[str, Any], num_layers: int, num_units: int, input_size: int) -> Network:
    """The network that the attrs of an op and the sizes describe; InvalidArgumentError where there is none."""
    mode, num_proj = attrs["rnn_mode"], attrs.get("num_proj", 0)
    if min(num_layers, num_units, input_size) <= 0 or num_layers > _MOST_LAYERS:
        raise InvalidArgumentError(
            f"num_layers, num_units and input_size must be positive, not {num_layers}, {num_units}, {input_size}"
        )
    if num_proj < 0 or (num_proj and (mode != b"lstm" or num_proj > num_units)):
        raise InvalidArgumentError(f"num_proj must be at most num_units, and of an LSTM: {num_proj} of {num_units}")
    input_mode = attrs["input_mode"]
    if input_mode == b"skip_input" and input_size != num_units:
        raise InvalidArgumentError(
            f"input_mode skip_input wants input_size == num_units, not {input_size} and {num_units}"
        )
    skips = input_mode == b"skip_input" or (input_mode == b"auto_select" and input_size == num_units)
    directions = 2 if attrs["direction"] == b"bidirectional" else 1
    found = Network(mode, num_layers, directions, num_units, input_size, skips, num_proj)
    if found.num_params > _MOST:
        raise ResourceExhaustedError(f"{found.num_params} parameters are more than the {_MOST} that there may be")
    return found
