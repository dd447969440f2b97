"""Requests and answers of a remote model: fetches and feeds to messages, and messages to nests of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from google.protobuf.message import DecodeError

from asyncexec.client.remote_signature import Fed, RemoteSignature
from asyncexec.framework.cooperative import run_at_once
from asyncexec.framework.errors import InternalError, InvalidArgumentError, InvalidTypeError
from asyncexec.service.datatypes import from_raw, to_raw
from asyncexec.service.grpc.codec import from_contents, set_parameters
from asyncexec.service.off_loop import off_loop
from asyncexec.service.protocol_messages import message
from asyncexec.session.fetch_mapper import NestMapper, structure_key
from asyncexec.session.outgoing import python_scalar

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

Parameters: TypeAlias = Mapping[str, bool | int | float | str]

_LIMITS: Final = range(-(2**63), 2**64)


class RemoteFetches(NestMapper):
    """A nest of names of outputs.

    Args:
        model, version: whose outputs they are.
        signature: what they are checked by; errors are its ``output_name``'s.
        fetches: the nest.
    """

    def __init__(self, model: str, version: str, signature: RemoteSignature, fetches: object) -> None:
        super().__init__()
        self._signature = signature
        run_at_once(self._read(fetches))
        self._names = list(self._positions)
        # Messages that follow each other are one message: this is the part that all requests have in common.
        request = message("ModelInferRequest")(model_name=model, model_version=version)
        for name in self._names:
            request.outputs.add(name=name)
        self._head: bytes = request.SerializeToString()
        self._request_class = message("ModelInferRequest")
        self._response_class = message("ModelInferResponse")

    def _map_leaf(self, fetch: object) -> int:
        return self.position_of(self._signature.output_name(fetch))

    async def encode(self, feeds: object, request_id: str = "", parameters: Parameters | None = None) -> bytes:
        """The request that feeds *feeds*; errors are those of ``RemoteSignature.convert``.

        InvalidTypeError where *parameters* cannot be sent.
        """
        if parameters is not None:
            _check_parameters(parameters)
        fed = await self._signature.convert(feeds)
        num_bytes = sum(each.array.nbytes for each in fed)
        return await off_loop(num_bytes, self._encoded, fed, request_id, parameters)

    def _encoded(self, fed: Sequence[Fed], request_id: str, parameters: Parameters | None) -> bytes:
        request = self._request_class(id=request_id)
        if parameters is not None:
            set_parameters(request.parameters, parameters)
        raw = request.raw_input_contents
        for name, datatype, array in fed:
            request.inputs.add(name=name, datatype=datatype, shape=array.shape)
            raw.append(to_raw(array))
        rest: bytes = request.SerializeToString()
        return self._head + rest

    async def decode(self, data: bytes, *, python_scalars: bool) -> Any:
        """The nest of values that *data*, a ModelInferResponse, has; InternalError where it is none."""
        return await off_loop(len(data), self._decoded, data, python_scalars)

    def _decoded(self, data: bytes, python_scalars: bool) -> object:
        response = self._response_class()
        try:
            response.ParseFromString(data)
        except DecodeError:
            raise InternalError("the server's answer is no ModelInferResponse") from None
        return self.nest_of(response, python_scalars=python_scalars)

    def nest_of(self, response: object, *, python_scalars: bool) -> Any:
        """The nest of values that *response*, a ModelInferResponse, has."""
        arrays = _arrays_of(response)
        values = []
        for name in self._names:
            array = arrays.get(name)
            if array is None:
                raise InternalError(f"the server's answer has no output {name!r}")
            value = array if array.ndim else array[()]
            values.append(python_scalar(value) if python_scalars and not array.ndim else value)
        return self.build(values)


def _check_parameters(parameters: object) -> None:
    if not isinstance(parameters, Mapping):
        raise InvalidTypeError(f"parameters is {type(parameters).__name__} {parameters!r}, not a mapping")
    for name, value in parameters.items():
        is_known = isinstance(value, (bool, float, str)) or (isinstance(value, int) and value in _LIMITS)
        if not isinstance(name, str) or not is_known:
            raise InvalidTypeError(f"parameter {name!r} is {value!r}, not text, a bool or a number of 64 bits")


def _arrays_of(response: Any) -> dict[str, Array]:
    raw = response.raw_output_contents
    if raw and len(raw) != len(response.outputs):
        raise InternalError(
            f"the server's answer has {len(raw)} raw_output_contents, of {len(response.outputs)} outputs"
        )
    arrays = {}
    try:
        for i, tensor in enumerate(response.outputs):
            array = from_raw(tensor.name, tensor.datatype, list(tensor.shape), raw[i]) if raw else from_contents(tensor)
            # Results are the caller's, who may change them.
            arrays[tensor.name] = array if array.flags.writeable else array.copy()
    except InvalidArgumentError as error:
        raise InternalError(f"the server's answer cannot be read: {error.message}") from error
    return arrays


def fetches_key(fetches: object) -> Any:
    """What nests that ask for the same have in common; InvalidArgumentError where *fetches* are nested too deeply."""
    try:
        return structure_key(fetches)
    except RecursionError:
        raise InvalidArgumentError("the fetches are nested too deeply") from None
