"""ObjectStore: S3, Google Cloud Storage, Azure and others, by the library obstore."""

from __future__ import annotations

from typing import Any

from asyncexec.durable.store import checked_key, not_found
from asyncexec.framework.errors import InvalidTypeError, OpError, PermissionDeniedError, UnavailableError
from asyncexec.framework.extras import require


class ObjectStore:
    """A store in a bucket: *store* is one of ``obstore.store``, such as ``S3Store``; needs the extra ``obstore``::

        checkpoints = ax.checkpoint.ObjectStore(obstore.store.S3Store("bucket", prefix="checkpoints"))

    >>> ax.checkpoint.ObjectStore(obstore.store.MemoryStore())
    <ax.checkpoint.ObjectStore MemoryStore>

    Raises:
        InvalidArgumentError: a key is no key.
        InvalidTypeError: *store* is no store of obstore.
        MissingExtraError: obstore is not installed.
        NotFoundError: ``get`` of a key that is not there.
        PermissionDeniedError: the service refuses the credentials.
        UnavailableError: the service has another error.
    """

    def __init__(self, store: Any) -> None:
        self._obstore: Any = require("obstore", extra="obstore")
        self._exceptions: Any = require("obstore.exceptions", extra="obstore")
        if isinstance(store, type) or not (hasattr(store, "put_async") or hasattr(store, "prefix")):
            raise InvalidTypeError(
                f"{store!r} is no store of obstore", hint='obstore.store.S3Store("bucket"), for example'
            )
        self._store = store

    async def put(self, key: str, value: bytes) -> None:
        """Store *value* in place of what is there."""
        try:
            await self._obstore.put_async(self._store, checked_key(key), value)
        except self._exceptions.BaseError as error:
            raise self._told(error, f"{key!r} cannot be written") from error

    async def put_new(self, key: str, value: bytes) -> bool:
        """Store *value* unless *key* is there; whether it has been stored."""
        try:
            await self._obstore.put_async(self._store, checked_key(key), value, mode="create")
        except (self._exceptions.AlreadyExistsError, FileExistsError):
            return False
        except self._exceptions.BaseError as error:
            raise self._told(error, f"{key!r} cannot be written") from error
        return True

    async def get(self, key: str) -> bytes:
        """The bytes of *key*; NotFoundError when there are none."""
        try:
            found = await self._obstore.get_async(self._store, checked_key(key))
            return bytes(await found.bytes_async())
        except (self._exceptions.NotFoundError, FileNotFoundError):
            raise not_found(key, "the bucket") from None
        except self._exceptions.BaseError as error:
            raise self._told(error, f"{key!r} cannot be read") from error

    async def list(self, prefix: str = "") -> list[str]:
        """The keys that begin with *prefix*, sorted."""
        folder = prefix.rpartition("/")[0]  # a service lists by whole words
        keys: list[str] = []
        try:
            async for batch in self._obstore.list(self._store, folder or None):
                keys += [entry["path"] for entry in batch]
        except self._exceptions.BaseError as error:
            raise self._told(error, "its keys cannot be listed") from error
        return sorted(key for key in keys if key.startswith(prefix))

    async def delete(self, key: str) -> None:
        """Forget *key*."""
        try:
            await self._obstore.delete_async(self._store, checked_key(key))
        except (self._exceptions.NotFoundError, FileNotFoundError):
            pass
        except self._exceptions.BaseError as error:
            raise self._told(error, f"{key!r} cannot be deleted") from error

    def _told(self, error: Exception, what: str) -> OpError:
        denied = (self._exceptions.PermissionDeniedError, self._exceptions.UnauthenticatedError)
        message = f"{self!r}: {what}: {error}"
        if isinstance(error, denied):
            return PermissionDeniedError(message, hint="give the store credentials that may read and write the bucket")
        return UnavailableError(message, hint="try again when the service answers; see that the bucket is there")

    def __repr__(self) -> str:
        return f"<ax.checkpoint.ObjectStore {type(self._store).__name__}>"
