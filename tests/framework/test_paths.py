"""Paths that users give: what is none is told by a typed error, wherever it is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic
import pytest

import asyncexec as ax
from asyncexec.framework.file_errors import checked_path
from asyncexec.testing import replay

TAKERS: list[Callable[[Any], Any]] = [ax.checkpoint.FileStore, ax.checkpoint.SQLiteStore, replay]


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("path", ["", "a\0b", "\0", "a/\ud800"])
def test_text_that_is_no_path_is_refused(taker: Callable[[Any], Any], path: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match=r"is a path, and '.*' is none"):
        taker(path)


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("path", [5, None, b"folder", ["folder"], True])
def test_what_is_no_text_is_refused(taker: Callable[[Any], Any], path: Any) -> None:
    with pytest.raises(ax.errors.InvalidTypeError, match="is a path, as str or"):
        taker(path)


@pytest.mark.parametrize("path", ["", "a\0b", "a/\ud800"])
def test_options_refuse_it_too(path: str) -> None:
    with pytest.raises(pydantic.ValidationError, match="where a record is written is a path"):
        ax.RunOptions(record=path)  # type: ignore[arg-type]
    with pytest.raises(pydantic.ValidationError, match="where a record is written is a path"):
        ax.SessionConfig(record_failures=path)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["a", Path("a/b"), "größe"])
def test_paths_are_as_they_are(path: Any) -> None:
    assert checked_path(path, "it") == str(path)
    assert ax.RunOptions(record=path).record == Path(path)
