"""``--cluster``: the workers that nodes of graphs may ask for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from asyncexec.cli.daemon import read_tokens
from asyncexec.cluster import Tls, connect
from asyncexec.distributed.cluster import Cluster
from asyncexec.distributed.cluster_spec import ClusterSpec, Tasks
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.importers.files import read_file

_JOB: Final = re.compile(r"([A-Za-z][A-Za-z0-9_]*)=(.*)", re.ASCII | re.DOTALL)


def cluster_spec(told: str) -> ClusterSpec:
    """The cluster that *told* is: a file of JSON, or ``worker=host:port,host:port``, with further jobs after a comma.

    Raises:
        InvalidArgumentError: it is neither; NotFoundError, PermissionDeniedError: the file cannot be read.
    """
    if _JOB.fullmatch(told) is None or Path(told).is_file():
        return ClusterSpec(_in_file(Path(told)))
    jobs: dict[str, list[str]] = {}
    addresses: list[str] = []
    for part in told.split(","):
        begins = _JOB.fullmatch(part)
        if begins is not None:
            addresses = jobs.setdefault(begins[1], [])
        addresses.append(part if begins is None else begins[2])
    return ClusterSpec(jobs)


def make_cluster(
    told: str,
    token_file: Path | None,
    tls_files: tuple[Path | None, Path | None, Path | None],
    *,
    objects: bool,
) -> Cluster:
    """The cluster that *told* is, which is yet to be opened.

    Args:
        token_file: has the token that its workers share.
        tls_files: a certificate, its key, and who must have signed those of workers.
        objects: whether functions, by name, and Python objects travel.

    Raises:
        OpError: as of ``cluster_spec``; a file cannot be read, or has something else in it.
    """
    tokens = read_tokens(token_file)
    if len(tokens) > 1:
        raise InvalidArgumentError(f"there are {len(tokens)} tokens in {token_file}, and a cluster shares one")
    tls = Tls.from_files(*tls_files) if any(tls_files) else None
    return connect(cluster_spec(told), token=tokens[0] if tokens else None, tls=tls, objects=objects)


def _in_file(file: Path) -> dict[str, Tasks]:
    example = '{"worker": ["host:port", "host:port"]}'
    hint = f"{example} in a file, or worker=host:port,host:port"
    try:
        found: object = json.loads(read_file(file, "the jobs of a cluster"))
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{file} is no JSON: {error}", hint=hint) from None
    if not isinstance(found, dict):
        raise InvalidArgumentError(f"{file} has no jobs with their addresses, as {example}")
    return {job: _by_number(job, tasks) for job, tasks in found.items()}


def _by_number(job: str, tasks: object) -> Any:
    """*tasks*, where their numbers are keys, and hence texts in JSON."""
    if not isinstance(tasks, dict):
        return tasks
    for number in tasks:
        if not (number.isascii() and number.isdecimal()):
            raise InvalidArgumentError(f"the number of a task of job {job!r} is 0 or more, not {number!r}")
    return {int(number): address for number, address in tasks.items()}
