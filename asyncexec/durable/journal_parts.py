"""The parts of journals: keys, tokens, and pauses as they are stored."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from asyncexec.durable.journal_scope import Path
from asyncexec.durable.record import Codec, Record, from_bytes
from asyncexec.durable.store import Store, bytes_in, keys_in
from asyncexec.framework.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    InvalidTypeError,
    NotFoundError,
    OpError,
)
from asyncexec.framework.pausing import Pause

_Made = TypeVar("_Made")
DIGEST_LENGTH: Final = 32
NONCE_LENGTH: Final = 16
LARGE_BYTES: Final = 2**18
BETWEEN: Final = "~"  # in tokens, between the run and the pause; no name of a run has it
RUNS: Final = "runs"
PAUSES: Final = "pauses"


def digest_of(path: Path) -> str:
    """What stands for *path* in a key of a store."""
    return hashlib.sha256(json.dumps(path).encode()).hexdigest()[:DIGEST_LENGTH]


def answer_key(run_id: str, digest: str, number: int = 0) -> str:
    """The key of the value of a pause, or of a later one, whose op has failed with those before."""
    return f"{RUNS}/{run_id}/answer-{digest}{f'-{number}' if number else ''}"


def num_failed(record: Record) -> int:
    """How many values the pause that *record* is of has had, with which its op has failed."""
    number = record.about.get("failed", 0)
    return number if type(number) is int else 0


def has_ended(parts: Collection[str]) -> bool:
    """Whether a run, of whose keys *parts* are the ends, has given its result, or waits for values alone."""
    num_answers = sum(part.startswith("answer-") for part in parts)
    return "run" not in parts or "done" in parts or f"paused-{num_answers}" in parts


async def made(make: Callable[[], _Made], *, is_large: bool) -> _Made:
    """What *make* gives, which is made on a thread where it *is_large*."""
    return await asyncio.to_thread(make) if is_large else make()


def digest_in(token: str) -> str:
    """The digest that stands for the path of the pause of *token*."""
    return token.rpartition(BETWEEN)[2][:DIGEST_LENGTH]


async def read_record(store: Store, key: str, codec: Codec) -> Record:
    """The record at *key*; errors name the key."""
    content = await bytes_in(store, key)
    try:
        return await made(partial(from_bytes, content, codec), is_large=len(content) > LARGE_BYTES)
    except (DataLossError, FailedPreconditionError) as error:
        raise type(error)(f"{key!r} of the journal: {error.message}", hint=error.hint) from error


def record_of(pause: Pause, path: Path, failed: int = 0) -> Record:
    """*pause*, which is at *path*, as it is stored; its op has *failed* with so many values."""
    about = {
        "kind": "pause",
        "token": pause.token,
        "path": path,
        "run": pause.run_id,
        "name": pause.name,
        "node": pause.node,
        "iteration": pause.iteration,
        "paused_at": pause.paused_at.isoformat(),
        "failed": failed,
    }
    return Record(about, {f"the payload of the pause {pause.name!r}": pause.payload})


def pause_of(record: Record) -> Pause:
    """The pause that *record* was made of."""
    about = record.about
    try:
        (payload,) = record.values.values()
        known = about["token"], about["run"], about["name"], payload, about["node"], about["iteration"]
        return Pause(*known, datetime.fromisoformat(about["paused_at"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DataLossError(f"it is no pause of a run: {error!r} is wrong") from error


async def is_answered(store: Store, run_id: str, digest: str, record: Record) -> bool:
    """Whether the pause that *record* is of has the value that it waits for: its run goes on, or was interrupted."""
    try:
        await store.get(answer_key(run_id, digest, num_failed(record)))
    except NotFoundError:
        return False
    return True


async def pause_with(store: Store, token: str, codec: Codec) -> Pause:
    """The pause that waits for the value of *token*.

    Raises:
        FailedPreconditionError: it has its value.
        NotFoundError: there is none.
    """
    run_id, _, rest = token.rpartition(BETWEEN)
    if run_id and len(rest) == DIGEST_LENGTH + NONCE_LENGTH:
        digest = digest_in(token)
        is_gone = True
        for key in (f"{PAUSES}/{run_id}/{digest}", answer_key(run_id, digest)):
            try:
                record = await read_record(store, key, codec)
            except NotFoundError:
                continue
            except InvalidTypeError:
                raise
            except InvalidArgumentError:  # no key: the token is made up
                is_gone = False
                break
            is_gone = False
            if record.about.get("token") != token:
                continue
            if record.about["kind"] == "answer" or await is_answered(store, run_id, digest, record):
                raise used(token)
            return pause_of(record)
        if is_gone and f"{RUNS}/{run_id}/run" in await keys_in(store, f"{RUNS}/{run_id}/run"):
            raise used(token)  # and the run has gone on since
    raise NotFoundError(
        f"no pause waits for the token {token!r}", hint="await session.pauses() tells those that wait, and their tokens"
    )


def used(token: str) -> OpError:
    """The error of a token that is used again."""
    return FailedPreconditionError(
        f"the token {token!r} has been used: its pause waits no more",
        hint="session.resume_run(run_id) goes on with the run, or gives its result again",
    )
