"""What a store is: bytes by key, in a place that outlives the process.

A store knows nothing of checkpoints.  ``put`` returns when the bytes are safe, and a reader sees the old bytes or the
new ones, never a part.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol, runtime_checkable

from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, NotFoundError

_KEY: Final = re.compile(r"[A-Za-z0-9_.=+-]+(/[A-Za-z0-9_.=+-]+)*")
MAX_KEY_LENGTH: Final = 250


@runtime_checkable
class Store(Protocol):
    """Bytes by key; write a class with these four methods for a store of your own.

    Keys are words of letters, digits and ``_.=+-``, with ``/`` between them, of at most 250 characters.
    """

    async def put(self, key: str, value: bytes) -> None:
        """Store *value* in place of what is there, and return when it is safe."""
        ...

    async def get(self, key: str) -> bytes:
        """The bytes of *key*; NotFoundError when there are none."""
        ...

    async def list(self, prefix: str = "") -> list[str]:
        """The keys that begin with *prefix*, sorted."""
        ...

    async def delete(self, key: str) -> None:
        """Forget *key*; nothing happens when it is not there."""
        ...


def checked_key(key: str) -> str:
    """*key*; InvalidArgumentError unless every store can have it."""
    if len(key) > MAX_KEY_LENGTH or not _KEY.fullmatch(key):
        raise InvalidArgumentError(
            f"{key!r:.300} is no key of a store",
            hint=f"words of letters, digits and _.=+- with / between them, at most {MAX_KEY_LENGTH} characters",
        )
    if any(set(word) == {"."} for word in key.split("/")):
        raise InvalidArgumentError(f"{key!r} is no key of a store: a word of dots alone is a folder")
    return key


def checked_store(store: object) -> Store:
    """*store*; InvalidTypeError unless it has the methods of one."""
    if isinstance(store, type) or not isinstance(store, Store):
        raise InvalidTypeError(
            f"a store has the methods put, get, list and delete, which {type(store).__name__} has not",
            hint="ax.checkpoint.SQLiteStore(path), for example",
        )
    return store


async def bytes_in(store: Store, key: str) -> bytes:
    """What *store* has of *key*.

    Raises:
        InvalidTypeError: the store gives something else than bytes.
        NotFoundError: there is nothing.
    """
    content: object = await store.get(key)
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise InvalidTypeError(
            f"the store {type(store).__name__} gave {type(content).__name__} for {key!r}, and not bytes",
            hint="get of a store returns bytes, and raises ax.errors.NotFoundError where there are none",
        )
    return bytes(content)


async def keys_in(store: Store, prefix: str) -> list[str]:
    """The keys in *store* that begin with *prefix*.

    Raises:
        InvalidTypeError: the store gives something else than a list of strings.
    """
    keys: object = await store.list(prefix)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise InvalidTypeError(
            f"the store {type(store).__name__} gave {keys!r:.100} for the prefix {prefix!r}, and no list of strings",
            hint="list of a store returns the keys that begin with the prefix",
        )
    return [key for key in keys if key.startswith(prefix)]


async def put_new(store: Store, key: str, value: bytes) -> bool:
    """Store *value* unless *key* is there; whether it has been stored.

    Of two that try at once, one does, if the store has a method ``put_new`` itself; those of asyncexec have.
    """
    own: Any = getattr(store, "put_new", None)
    if own is not None:
        return bool(await own(key, value))
    try:
        await store.get(key)
    except NotFoundError:
        await store.put(key, value)
        return True
    return False


def not_found(key: str, where: str) -> NotFoundError:
    """The error of a ``get``."""
    return NotFoundError(f"{where} has no {key!r}")


class MemoryStore:
    """A store in memory, for tests: it ends with the process.

    >>> ax.checkpoint.MemoryStore()
    <ax.checkpoint.MemoryStore of 0 keys>

    Raises:
        InvalidArgumentError: a key is no key.
        NotFoundError: ``get`` of a key that is not there.
    """

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    async def put(self, key: str, value: bytes) -> None:
        """Store *value* in place of what is there."""
        self._values[checked_key(key)] = bytes(value)

    async def put_new(self, key: str, value: bytes) -> bool:
        """Store *value* unless *key* is there; whether it has been stored."""
        if key in self._values:
            return False
        await self.put(key, value)
        return True

    async def get(self, key: str) -> bytes:
        """The bytes of *key*; NotFoundError when there are none."""
        try:
            return self._values[key]
        except KeyError:
            raise not_found(key, "the store") from None

    async def list(self, prefix: str = "") -> list[str]:
        """The keys that begin with *prefix*, sorted."""
        return sorted(key for key in self._values if key.startswith(prefix))

    async def delete(self, key: str) -> None:
        """Forget *key*."""
        self._values.pop(key, None)

    def __repr__(self) -> str:
        return f"<ax.checkpoint.MemoryStore of {len(self._values)} keys>"
