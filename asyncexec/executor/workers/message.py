"""Message: values on their way between processes.

Values are pickled by protocol 5; the contents of large arrays travel beside that, in one segment of shared memory.
Who packs a message is a process of the same program, and so is who unpacks it: nothing of a graph's file is ever in one
but plain values.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from multiprocessing.shared_memory import SharedMemory

_LARGE: Final = 64 * 1024  # bytes; below, a pipe is quicker than a segment
_ALIGNMENT: Final = 64
_PROTOCOL: Final = 5
_SEGMENTS: Final = "/dev/shm"  # noqa: S108 - where Linux keeps shared memory


class Message(NamedTuple):
    """Pickled *data*, and the segment that holds buffers of these *sizes*, if there are any."""

    data: bytes
    segment: str | None = None
    sizes: tuple[int, ...] = ()


def open_segment(name: str, size: int = 0) -> SharedMemory:
    """The segment of that name; a new one, if it is to have a *size*."""
    # Here, and not above: multiprocessing takes its time to import, and most sessions have no processes.
    from multiprocessing.shared_memory import SharedMemory

    return SharedMemory(name, create=size > 0, size=size)


def pack(values: object, segment_name: str) -> tuple[Message, SharedMemory | None]:
    """A message of *values*, and the segment of that name if needed; the caller closes it, and someone unlinks it.

    Raises:
        Exception: whatever pickle raises for what cannot be pickled.
    """
    buffers: list[pickle.PickleBuffer] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as raw:
            if raw.nbytes < _LARGE:
                return True
        buffers.append(buffer)
        return False

    data = pickle.dumps(values, _PROTOCOL, buffer_callback=is_small)
    if not buffers:
        return Message(data), None
    views = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    sizes = tuple(view.nbytes for view in views)
    total = sum(map(_aligned, sizes))
    if not _has_room(total):
        return Message(pickle.dumps(values, _PROTOCOL)), None
    segment = open_segment(segment_name, total)
    for view, place in zip(views, _places(segment, sizes), strict=True):
        np.copyto(np.frombuffer(place, np.uint8), view)
    return Message(data, segment_name, sizes), segment


def unpack(message: Message, segment: SharedMemory | None, *, copy: bool) -> Any:
    """The values in *message*: with arrays of their own, or else read-only ones in *segment*."""
    if segment is None:
        return pickle.loads(message.data)  # noqa: S301 - our own program's
    places = _places(segment, message.sizes)
    buffers = [_copied(place) for place in places] if copy else [place.toreadonly() for place in places]
    return pickle.loads(message.data, buffers=buffers)  # noqa: S301 - our own program's


def attach(message: Message) -> SharedMemory | None:
    """The segment of *message*, if it has one; the caller closes it."""
    return None if message.segment is None else open_segment(message.segment)


def discard(segment_name: str) -> None:
    """Let the segment of that name be gone, if it is there."""
    try:
        segment = open_segment(segment_name)
    except FileNotFoundError:
        return
    segment.close()
    segment.unlink()


def _has_room(size: int) -> bool:
    """Whether a segment of *size* bytes can be filled: where it cannot, that would end the process, not raise."""
    import shutil  # which imports every kind of archive

    try:
        return shutil.disk_usage(_SEGMENTS).free >= size
    except OSError:  # not a system that keeps them there
        return True


def _places(segment: SharedMemory, sizes: Sequence[int]) -> list[memoryview]:
    places: list[memoryview] = []
    start = 0
    memory = segment.buf
    assert memory is not None  # it is open
    for size in sizes:
        places.append(memory[start : start + size])
        start += _aligned(size)
    return places


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _copied(place: memoryview) -> object:
    """An array of its own; numpy lets go of the GIL while it copies."""
    return np.array(np.frombuffer(place, np.uint8))


class Failure(NamedTuple):
    """What a call raised, and its traceback there as text."""

    error: BaseException
    traceback: str

    @classmethod
    def of(cls, error: BaseException, traceback: str) -> Failure:
        """One that can be packed, and unpacked: where the exception itself cannot, its text stands for it."""
        try:
            pickle.loads(pickle.dumps(error, _PROTOCOL))  # noqa: S301 - our own
        except Exception:
            return cls(RuntimeError(f"{type(error).__name__}: {_text_of(error)}"), traceback)
        return cls(error, traceback)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "it cannot be shown"
