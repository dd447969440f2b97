"""SharedMemory: regions of POSIX shared memory that local clients put tensors into (system shared memory extension).

A region is read and written by ``pread`` and ``pwrite`` on its file, never mapped: a client may truncate it at any
time, and memory that is mapped and gone kills the process (SIGBUS), where a read is only short.  An input is copied
when its request comes, so that nobody writes what a model reads; the copy that a message would need is saved.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias
from weakref import finalize

import numpy as np

from asyncexec.framework.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnimplementedError,
)
from asyncexec.service.datatypes import from_raw, to_raw
from asyncexec.service.http.body import off_loop
from asyncexec.service.requests import InferRequest, InferResponse, InferTensor, SharedInput, SharedPart

FOLDER: Final = Path("/dev/shm")  # noqa: S108
_MOST_REGIONS: Final = 1000
_MOST_NAME: Final = 255
_OFF: Final = "shared memory is not supported: start with --shared-memory"
NO_CUDA: Final = "CUDA shared memory is not supported: there is no GPU that this server shares memory of"


class Callee(Protocol):
    """A model that can be called."""

    def held(self) -> AbstractContextManager[None]:
        """It is not closed before the block ends."""

    def infer(self, request: InferRequest) -> Coroutine[Any, Any, InferResponse]:
        """The answer to *request*."""

    def responses(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """The answers to *request*."""


class Region:
    """A part of an object in shared memory: *byte_size* bytes of *key* from *offset* on.

    Its file is closed when nothing has the region any more: requests may use it after it was unregistered.
    """

    def __init__(self, name: str, key: str, offset: int, byte_size: int, file: int) -> None:
        self.name: str = name
        self.key: str = key
        self.offset: int = offset
        self.byte_size: int = byte_size
        self._file = file
        self._closing = finalize(self, os.close, file)

    def read(self, part: SharedPart) -> bytearray:
        """The bytes of *part*, as they are now; InvalidArgumentError where the object has fewer."""
        start = self._start(part)
        data = bytearray(part.byte_size)
        rest, done = memoryview(data), 0
        while done < len(data):
            count = os.preadv(self._file, [rest[done:]], start + done)
            if not count:
                raise self._truncated()
            done += count
        return data

    def write(self, part: SharedPart, data: bytes | memoryview) -> None:
        """Let *data* be what *part* begins with; InvalidArgumentError where the object has no room for it."""
        start = self._start(part)
        if os.fstat(self._file).st_size < start + len(data):  # a write behind the end would let it grow
            raise self._truncated()
        rest, done = memoryview(data), 0
        try:
            while done < len(data):
                done += os.pwrite(self._file, rest[done:], start + done)
        except OSError as error:  # its pages are taken when they are written
            raise ResourceExhaustedError(f"shared memory region '{self.name}' cannot be written: {error}") from None

    def _start(self, part: SharedPart) -> int:
        """Where *part* begins in the object; InvalidArgumentError where it is not in the region."""
        if part.offset + part.byte_size > self.byte_size:
            raise InvalidArgumentError(
                f"Invalid offset + byte size for shared memory region: '{self.name}': it has {self.byte_size} bytes, "
                f"and {part.byte_size} from {part.offset} on are asked for"
            )
        return self.offset + part.offset

    def _truncated(self) -> InvalidArgumentError:
        return InvalidArgumentError(f"the object of shared memory region '{self.name}' has become smaller")


Parts: TypeAlias = Mapping[str, tuple[Region, SharedPart]]  # of outputs by name


class SharedMemory:
    """The regions that clients have registered.

    Args:
        max_bytes: of the inputs of a request; None where clients may register nothing.
        folder: where the objects are.
    """

    def __init__(self, max_bytes: int | None = None, folder: Path = FOLDER) -> None:
        self._max_bytes = max_bytes
        self._folder = folder
        self._regions: dict[str, Region] = {}

    @property
    def extensions(self) -> tuple[str, ...]:
        """What clients are told that the server can."""
        return () if self._max_bytes is None else ("system_shared_memory",)

    def status(self, name: str = "") -> list[Region]:
        """All regions, or the one called *name*.

        Raises:
            NotFoundError: there is no such region.
        """
        if not name:
            return list(self._regions.values())
        if name not in self._regions:
            raise NotFoundError(f"Unable to find system shared memory region: '{name}'")
        return [self._regions[name]]

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Let *byte_size* bytes of the object *key* from *offset* on be the region *name*.

        Raises:
            UnimplementedError: clients may register nothing here.
            AlreadyExistsError: there is such a region; ResourceExhaustedError: there are too many.
            InvalidArgumentError: there is no such object, or it has fewer bytes.
        """
        if self._max_bytes is None:
            raise UnimplementedError(_OFF)
        self._check_new(name)
        for told, value in (("offset", offset), ("byte_size", byte_size)):
            if type(value) is not int or not 0 <= value < 2**64:
                raise InvalidArgumentError(f"'{told}' of shared memory region '{name}' is {value!r}, and no size")
        self._regions[name] = self._opened(name, key, offset, byte_size)  # it is memory: no disk is waited for

    def _check_new(self, name: str) -> None:
        if not name or len(name) > _MOST_NAME:
            raise InvalidArgumentError(f"the name of a shared memory region has 1 to {_MOST_NAME} characters")
        if name in self._regions:
            raise AlreadyExistsError(f"shared memory region '{name}' already in manager")
        if len(self._regions) >= _MOST_REGIONS:
            raise ResourceExhaustedError(f"there are {_MOST_REGIONS} shared memory regions, and no more are registered")

    def _opened(self, name: str, key: str, offset: int, byte_size: int) -> Region:
        file = self._open(name, key)
        size = os.fstat(file).st_size
        if not byte_size or offset + byte_size > size:
            os.close(file)
            raise InvalidArgumentError(
                f"failed to register shared memory region '{name}': invalid args: '{key}' has {size} bytes, and "
                f"{byte_size} from {offset} on are asked for"
            )
        return Region(name, key, offset, byte_size, file)

    def _open(self, name: str, key: str) -> int:
        """The file of the object *key*: a plain file in the folder, and nothing that a link leads to."""
        plain = key.removeprefix("/")
        if not plain or "/" in plain or "\0" in plain or plain in (".", "..") or len(plain.encode()) > _MOST_NAME:
            raise InvalidArgumentError(f"the key of shared memory region '{name}' is no name of an object: {key!r}")
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            file = os.open(self._folder / plain, flags)
        except OSError as error:
            raise InvalidArgumentError(
                f"Unable to open shared memory region: '{name}': '{key}': {error.strerror}"
            ) from None
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise InvalidArgumentError(f"Unable to open shared memory region: '{name}': '{key}' is no shared memory")
        return file

    def unregister(self, name: str = "") -> None:
        """Forget the region *name*, if there is one, or all.  Requests that use it go on."""
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def infer(self, model: Callee, request: InferRequest) -> Coroutine[Any, Any, InferResponse]:
        """The answer of *model* to *request*, whose inputs and outputs may be in shared memory.

        Raises:
            NotFoundError: there is no such region; InvalidArgumentError: a tensor does not fit into its part of one.
            UnimplementedError: clients may register nothing here.
            OpError: what the model raises.
        """
        if request.shared_inputs is None and request.output_options is None:
            return model.infer(request)
        return self._infer(model, request)

    def responses(self, model: Callee, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """The answers of *model* to *request*; errors as of infer()."""
        if request.shared_inputs is None and request.output_options is None:
            return model.responses(request)
        return self._responses(model, request)

    async def _infer(self, model: Callee, request: InferRequest) -> InferResponse:
        with model.held():  # inputs may take long to be read
            parts = self._parts(request)
            return await _written(await model.infer(await self.with_inputs(request)), parts)

    async def _responses(self, model: Callee, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        with model.held():
            parts = self._parts(request)
            async with aclosing(model.responses(await self.with_inputs(request))) as responses:
                async for response in responses:
                    yield await _written(response, parts)

    def _parts(self, request: InferRequest) -> Parts:
        """Where in shared memory outputs of *request* are to lie."""
        parts = {name: each.part for name, each in (request.output_options or {}).items() if each.part is not None}
        return {name: (self._region(part), part) for name, part in parts.items()}

    async def with_inputs(self, request: InferRequest) -> InferRequest:
        """*request* with the inputs that are in shared memory; errors as of infer()."""
        if request.shared_inputs is None:
            return request
        shared = await self._inputs(request.shared_inputs, request.num_shared_bytes)
        return request._replace(inputs={**request.inputs, **shared}, shared_inputs=None)

    async def _inputs(self, shared: Mapping[str, SharedInput], size: int) -> dict[str, InferTensor]:
        read = [(name, each, self._region(each.part)) for name, each in shared.items()]
        assert self._max_bytes is not None  # there are regions
        if size > self._max_bytes:
            raise ResourceExhaustedError(
                f"the inputs in shared memory have {size} bytes: at most {self._max_bytes} are read for a request"
            )
        return await off_loop(size, lambda: {name: _read(name, each, region) for name, each, region in read})

    def _region(self, part: SharedPart) -> Region:
        if self._max_bytes is None:
            raise UnimplementedError(_OFF)
        region = self._regions.get(part.region)
        if region is None:
            raise NotFoundError(f"Unable to find shared memory region: '{part.region}'")
        return region


def _read(name: str, shared: SharedInput, region: Region) -> InferTensor:
    data = memoryview(region.read(shared.part))
    return InferTensor(shared.datatype, from_raw(name, shared.datatype, shared.shape, data))


async def _written(response: InferResponse, parts: Parts) -> InferResponse:
    """*response* with those outputs in *parts* of regions that are wanted there."""
    if not parts:
        return response
    size = sum(response.outputs[name].array.nbytes for name in parts if name in response.outputs)
    return await off_loop(size, lambda: response._replace(outputs=dict(_placed(response, parts))))


def _placed(response: InferResponse, parts: Parts) -> Iterator[tuple[str, InferTensor]]:
    for name, tensor in response.outputs.items():
        if name not in parts:
            yield name, tensor
            continue
        region, part = parts[name]
        data = _bytes_of(tensor)
        if len(data) > part.byte_size:
            raise InvalidArgumentError(
                f"shared memory size specified with the request for output '{name}' ({part.byte_size} bytes) should be "
                f"at least {len(data)} bytes to hold the results"
            )
        region.write(part, data)
        yield name, tensor._replace(part=part._replace(byte_size=len(data)))


def _bytes_of(tensor: InferTensor) -> bytes | memoryview:
    array = tensor.array
    if array.dtype.kind in "OSU" or array.dtype.byteorder == ">" or not array.nbytes:
        return to_raw(array)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
