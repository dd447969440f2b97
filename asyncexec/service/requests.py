"""What a client asks of a model and gets from it, whatever the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from asyncexec.framework.errors import InvalidArgumentError

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

Parameter: TypeAlias = bool | int | float | str

US_PER_S: Final = 1_000_000
NO_PARAMETERS: Final[Mapping[str, Parameter]] = MappingProxyType({})
WANTS_FINAL: Final = "triton_enable_empty_final_response"  # of a request: to be told that no response follows
IS_FINAL: Final = "triton_final_response"  # of a response: whether none follows


class SharedPart(NamedTuple):
    """Bytes of a region of shared memory: *byte_size* from *offset* on."""

    region: str
    byte_size: int
    offset: int = 0


class InferTensor(NamedTuple):
    """A tensor by the protocol's name of its datatype.

    Attributes:
        datatype, array: what it is.
        part: where it lies in shared memory, if it does; then it is not sent.
    """

    datatype: str
    array: Array
    part: SharedPart | None = None


class SharedInput(NamedTuple):
    """An input that the caller has put into shared memory."""

    datatype: str
    shape: Sequence[int]
    part: SharedPart


class OutputOptions(NamedTuple):
    """How an output is wanted.

    Attributes:
        num_classes: how many of the largest elements of a row are wanted as classes; 0 for the output as it is.
        part: where in shared memory it is to lie; None for an output that is sent.
    """

    num_classes: int = 0
    part: SharedPart | None = None


class InferRequest(NamedTuple):
    """One call of a model.

    Attributes:
        model_name, model_version: of the model; version "" is the newest.
        id: the caller's name for the call.
        inputs: tensors by name.
        outputs: the names of the outputs that are wanted; None for all.
        parameters: what else the caller says, such as ``timeout`` in microseconds.
        shared_inputs: inputs that are in shared memory, and not among *inputs* yet.
        output_options: of outputs by name, where they are not wanted as they are.
    """

    model_name: str
    inputs: Mapping[str, InferTensor]
    outputs: Sequence[str] | None = None
    model_version: str = ""
    id: str = ""
    parameters: Mapping[str, Parameter] = NO_PARAMETERS
    shared_inputs: Mapping[str, SharedInput] | None = None
    output_options: Mapping[str, OutputOptions] | None = None

    @property
    def timeout_s(self) -> float | None:
        """How long the caller wants to wait; InvalidArgumentError where that is no number of microseconds."""
        timeout = self.parameters.get("timeout")
        if timeout is None:
            return None
        if isinstance(timeout, bool) or not isinstance(timeout, int) or not 0 <= timeout < 2**63:
            raise InvalidArgumentError(f"parameter 'timeout' is a number of microseconds, not {timeout!r}")
        return timeout / US_PER_S or None

    @property
    def num_shared_bytes(self) -> int:
        """The size of the inputs that are in shared memory."""
        return sum(each.part.byte_size for each in (self.shared_inputs or {}).values())


class InferResponse(NamedTuple):
    """What a model gave: tensors by the names of outputs, in the order in which they were wanted."""

    model_name: str
    model_version: str
    id: str
    outputs: Mapping[str, InferTensor]
    parameters: Mapping[str, Parameter] = NO_PARAMETERS

    @property
    def num_bytes(self) -> int:
        """The size of all tensors."""
        total = 0
        for tensor in self.outputs.values():
            total += tensor.array.nbytes
        return total
