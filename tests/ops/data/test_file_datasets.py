"""Datasets of files: what they read, in which parts, what bad files get, and where files may lie."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.checkpoints.crc32c import crc32c, masked
from asyncexec.framework.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
)
from asyncexec.ops.data import reading
from tests.ops.data.pipelines import Data, elements, i64, iterated

STRING = (ax.string,)
pytestmark = pytest.mark.one_of("loop")


def records(*contents: bytes) -> bytes:
    """A file of TFRecords."""
    parts = []
    for content in contents:
        length = struct.pack("<Q", len(content))
        parts += [length, struct.pack("<I", masked(crc32c(length)))]
        parts += [content, struct.pack("<I", masked(crc32c(content)))]
    return b"".join(parts)


def dataset(op: str, *inputs: Any, dtypes: Any = STRING, **attrs: Any) -> Data:
    return Data(ax.create_op(op, list(inputs), attrs), tuple(dtypes), tuple(ax.TensorShape(None) for _ in dtypes))


def tf_records(*names: Path, compression: str = "") -> Data:
    return dataset("TFRecordDataset", [str(name) for name in names], compression, i64(0))


def lines(*names: Path, compression: str = "") -> Data:
    return dataset("TextLineDataset", [str(name) for name in names], compression, i64(0))


def fixed(name: Path, header: int, length: int, footer: int, compression: str | None = None) -> Data:
    more = [] if compression is None else [compression]
    op = "FixedLengthRecordDataset" + ("" if compression is None else "V2")
    return dataset(op, [str(name)], i64(header), i64(length), i64(footer), i64(0), *more)


def csv(name: Path, defaults: list[Any], **given: Any) -> Data:
    kinds = [ax.convert_to_tensor(default).dtype for default in defaults]
    options = {
        "header": False,
        "field_delim": ",",
        "use_quote_delim": True,
        "na_value": "",
        "select": [],
        "exclude": [],
    }
    options |= given
    return dataset(
        "CSVDatasetV2",
        [str(name)],
        "",
        i64(4096),
        options["header"],
        options["field_delim"],
        True,
        options["na_value"],
        np.array(options["select"], np.int64),
        defaults,
        np.array(options["exclude"], np.int64),
        dtypes=kinds,
        output_types=kinds,
        output_shapes=[ax.TensorShape([])] * len(kinds),
    )


@pytest.fixture(params=[1 << 18, 3], ids=["at once", "in parts"])
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes are read at once."""
    monkeypatch.setattr(reading, "CHUNK", request.param)
    return int(request.param)


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
async def test_records(tmp_path: Path, compression: str, chunk: int) -> None:
    contents = [b"one", b"", b"three" * 100, b"\n\r\0"]
    packed = {"": bytes, "GZIP": gzip.compress, "ZLIB": zlib.compress}[compression]
    for number, part in enumerate((contents[:2], contents[2:])):
        (tmp_path / f"{number}").write_bytes(packed(records(*part)))
    names = [tmp_path / "0", tmp_path / "1"]
    assert await elements(lambda: tf_records(*names, compression=compression)) == contents


async def test_records_from_an_offset(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(records(b"one", b"two"))
    offset = i64([len(records(b"one"))])
    found = await elements(lambda: dataset("TFRecordDatasetV2", [str(file)], "", i64(0), offset))
    assert found == [b"two"]


def damaged(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda data: damaged(data, 19), "corrupted record at 19"),
        (lambda data: damaged(data, 19 + 12), "corrupted record at 19"),
        (lambda data: data[:-1], "truncated record at 19"),
        (lambda data: data[:25], "truncated record at 19"),
    ],
    ids=["length", "content", "checksum cut", "head cut"],
)
async def test_a_bad_record_ends_its_file(
    tmp_path: Path, change: Callable[[bytes], bytes], match: str, chunk: int
) -> None:
    (tmp_path / "bad").write_bytes(change(records(b"one", b"two", b"six")[: 2 * 19]))
    (tmp_path / "good").write_bytes(records(b"good"))
    with ax.Graph() as graph:
        found = iterated(tf_records(tmp_path / "bad", tmp_path / "good"))
    async with ax.Session(graph) as session:
        await found.begin(session)
        assert await found.take(session, 1) == [b"one"]
        with pytest.raises(DataLossError, match=match):
            await session.run(found.next)
        assert await found.take(session) == [b"good"]


async def test_data_that_is_not_compressed_as_said(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(records(b"one"))
    (tmp_path / "cut").write_bytes(gzip.compress(records(bytes(range(256)) * 10))[:-12])
    for name in ("plain", "cut"):
        with pytest.raises(DataLossError, match="compressed"):
            await elements(lambda name=name: tf_records(tmp_path / name, compression="GZIP"))  # type: ignore[misc]


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_lines(tmp_path: Path, compression: str, chunk: int) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(b"one\ntwo\r\n\nfour") if compression else b"one\ntwo\r\n\nfour")
    (tmp_path / "b").write_bytes(gzip.compress(b"") if compression else b"")
    (tmp_path / "c").write_bytes(gzip.compress(b"five\n") if compression else b"five\n")
    names = [tmp_path / name for name in "abc"]
    found = await elements(lambda: lines(*names, compression=compression))
    assert found == [b"one", b"two", b"", b"four", b"five"]


@pytest.mark.parametrize("compression", [None, "", "ZLIB"])
async def test_records_of_one_length(tmp_path: Path, compression: str | None, chunk: int) -> None:
    data = b"HEADaabbccFOOT"
    (tmp_path / "file").write_bytes(zlib.compress(data) if compression else data)
    found = await elements(lambda: fixed(tmp_path / "file", 4, 2, 4, compression))
    assert found == [b"aa", b"bb", b"cc"]


async def test_a_file_that_is_no_multiple_of_records(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"Haabbc")
    with pytest.raises(InvalidArgumentError, match="has body length 5 bytes, which is not an exact multiple"):
        await elements(lambda: fixed(tmp_path / "file", 1, 2, 0))


CSV = b'1,2.5,"a, ""b"""\r\n,NA,c\n-3,,"two\nlines"'


async def test_comma_separated_values(tmp_path: Path, chunk: int) -> None:
    (tmp_path / "file").write_bytes(CSV)
    defaults = [np.int32(7), np.float32(0.5), ""]
    found = await elements(lambda: csv(tmp_path / "file", defaults, na_value="NA"))
    assert found == [(1, 2.5, b'a, "b"'), (7, 0.5, b"c"), (-3, 0.5, b"two\nlines")]


async def test_columns_are_chosen(tmp_path: Path, chunk: int) -> None:
    (tmp_path / "file").write_bytes(b"a;b;c\n1;2;3\n4;5;6\n")
    options = {"header": True, "field_delim": ";"}
    numbers = [np.int64(0), np.int64(0)]
    file = tmp_path / "file"
    assert await elements(lambda: csv(file, numbers, select=[0, 2], **options)) == [(1, 3), (4, 6)]
    assert await elements(lambda: csv(file, numbers, exclude=[0], **options)) == [(2, 3), (5, 6)]


async def test_a_bad_row_is_an_error_in_its_place(tmp_path: Path, chunk: int) -> None:
    (tmp_path / "file").write_bytes(b'1,a\nx,b\n3\n4,c,d\n,e\n5,f"g\n6,"h"i"\n7,j\n')
    errors = [
        "Field 0 in record is not a valid int32: x",
        "Expect 2 fields but have 1 in record",
        "Expect 2 fields but have more in record",
        "Field 0 is required but missing in record!",
        "Unquoted fields cannot have quotes inside",
        "Quote inside a string has to be escaped by another quote",
    ]
    with ax.Graph() as graph:
        found = iterated(csv(tmp_path / "file", [np.empty(0, np.int32), ""]))
    async with ax.Session(graph) as session:
        await found.begin(session)
        assert await found.take(session, 1) == [(1, b"a")]
        for error in errors:
            with pytest.raises(InvalidArgumentError, match=error):
                await session.run(found.next)
        assert await found.take(session) == [(7, b"j")]


async def test_a_quote_that_is_not_closed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b'1,"a\n2,b\n')
    with pytest.raises(InvalidArgumentError, match="without closing quoted field"):
        await elements(lambda: csv(tmp_path / "file", [np.int32(0), ""]))


async def test_names_that_match(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c.csv"):
        (tmp_path / name).write_bytes(b"")
    patterns = [str(tmp_path / "*.txt"), str(tmp_path / "c*")]
    found = await elements(lambda: dataset("MatchingFilesDataset", patterns))
    assert found == [str(tmp_path / name).encode() for name in ("a.txt", "b.txt", "c.csv")]


async def test_a_missing_file_is_an_error_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"line\n")
    with ax.Graph() as graph:
        found = iterated(lines(tmp_path / "missing", tmp_path / "there"))
    async with ax.Session(graph) as session:
        await found.begin(session)
        with pytest.raises(NotFoundError, match="missing"):
            await session.run(found.next)
        assert await found.take(session) == [b"line"]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda path: lines(path, compression="LZ4"), "Unsupported compression_type: LZ4"),
        (lambda path: dataset("TextLineDataset", [str(path)], "", i64(-1)), "buffer_size"),
        (lambda path: fixed(path, 0, 0, 0), "`record_bytes` must be > 0"),
        (lambda path: fixed(path, -1, 1, 0), "must be >= 0"),
        (lambda path: csv(path, [""], field_delim=",,"), "only 1 char"),
        (lambda path: csv(path, [""], select=[0], exclude=[1]), "Either select_cols or exclude_cols"),
        (lambda path: csv(path, ["", ""], select=[1, 0]), "strictly increasing"),
        (lambda path: csv(path, [["", ""]]), "only be 1 default per field"),
        (lambda path: dataset("TFRecordDatasetV2", [str(path)], "", i64(0), i64([1, 2])), "of the same size"),
        (lambda path: dataset("TextLineDataset", [[str(path)]], "", i64(0)), "`filenames` must be a scalar or a vec"),
    ],
)
async def test_bad_arguments(tmp_path: Path, make: Callable[[Path], Data], match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        await elements(lambda: make(tmp_path / "file"))


async def test_files_lie_where_the_graph_may_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "file").write_bytes(b"line\n")
    with ax.Graph() as made:
        for name, folder in (("in", inside), ("out", outside)):
            iterated(lines(folder / "file"), name)
    with ax.Graph() as graph:
        ax.import_graph_def(made.as_graph_def(), name="refused")
        ax.import_graph_def(made.as_graph_def(), name="", allowed_folders=[inside])
    async with ax.Session(graph) as session:
        with pytest.raises(PermissionDeniedError, match="TextLineDataset"):
            await session.run([], targets=["refused/in/make"])
        await session.run([], targets=["in/make", "out/make"])
        assert await session.run("in/next:0") == b"line"
        with pytest.raises(PermissionDeniedError, match="may not read"):
            await session.run("out/next:0")


async def test_a_cache_in_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ax.errors.UnimplementedError, match="cached in memory"):
        await elements(lambda: lines(tmp_path / "file").cache(str(tmp_path / "cache")))
