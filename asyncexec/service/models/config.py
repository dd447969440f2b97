"""A model's configuration: Triton's ModelConfig, read from text, JSON or a dict, and completed from its graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.extras import require
from asyncexec.importers.files import read_file
from asyncexec.service.models.config_fields import check_fields
from asyncexec.service.models.queueing import check_batching, policies_of
from asyncexec.service.models.signature import Signature, TensorSpec
from asyncexec.service.protocol_messages import message

CONFIG_TEXT: Final = "config.pbtxt"
CONFIG_JSON: Final = "config.json"
Parameter: TypeAlias = str | bytes | bool | int

_BACKEND: Final = "asyncexec"
_IDLE_US: Final = 10**6  # of a sequence, unless its model's config says otherwise
MOST_SEQUENCES: Final = 10**4  # of a model at a time
_MOST_QUEUED: Final = 10**6
_MOST_LEVELS: Final = 1000
_MOST_INSTANCES: Final = 10**4
_LONGEST_DELAY_US: Final = 10**9  # about a quarter of an hour
_LONGEST_TIMEOUT_US: Final = 7 * 24 * 3600 * 10**6
_MOST_CONFIG: Final = 2**20  # characters or bytes of a config that a client sends
_MOST_WARM_RUNS: Final = 1000
_MOST_WARM: Final = 64 * 2**20  # elements of the tensors of a sample


def config_in(folder: Path) -> Any:
    """The ModelConfig in *folder*; an empty one where there is none.

    Raises:
        InvalidArgumentError: it is no ModelConfig; OSError: it cannot be read.
    """
    text, json = folder / CONFIG_TEXT, folder / CONFIG_JSON
    if text.is_file():
        return parse_text(read_file(text, "a model configuration"), str(text))
    if json.is_file():
        return parse_json(read_file(json, "a model configuration"), str(json))
    return message("ModelConfig")()


def parse_text(data: bytes, source: str) -> Any:
    """The ModelConfig whose text format *data* is; InvalidArgumentError, naming *source*, where it is none."""
    text_format = require("google.protobuf.text_format", extra="serve")
    try:
        return text_format.Parse(data, message("ModelConfig")())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{source} is no model configuration: {error}") from None


def parse_json(data: bytes | str, source: str) -> Any:
    """The same of JSON."""
    json_format = require("google.protobuf.json_format", extra="serve")
    try:
        return json_format.Parse(data, message("ModelConfig")())
    except (json_format.ParseError, UnicodeError, RecursionError) as error:
        raise InvalidArgumentError(f"{source} is no model configuration: {error}") from None


def config_of_load(parameters: Mapping[str, Parameter]) -> str | bytes | None:
    """The config, as JSON, that the *parameters* of a load have; None where they have none.

    Raises:
        InvalidArgumentError: it is no text, or a long one; UnimplementedError: there are other parameters.
    """
    given = dict(parameters)
    config = given.pop("config", None)
    if given:
        raise UnimplementedError(f"parameters {sorted(given)} of a load are not supported, only 'config'")
    if config is None:
        return None
    if not isinstance(config, (str, bytes)):
        raise InvalidArgumentError("parameter 'config' of a load is JSON as a string")
    if len(config) > _MOST_CONFIG:
        raise InvalidArgumentError(f"parameter 'config' of a load has more than {_MOST_CONFIG} bytes: {len(config)}")
    return config


def config_of(fields: Mapping[str, object], source: str) -> Any:
    """The same of a dict."""
    json_format = require("google.protobuf.json_format", extra="serve")
    try:
        return json_format.ParseDict(dict(fields), message("ModelConfig")())
    except json_format.ParseError as error:
        raise InvalidArgumentError(f"{source} is no model configuration: {error}") from None


def check(config: Any, name: str) -> None:
    """Raise InvalidArgumentError where *config* is not of the model called *name*, or asks for what cannot be had."""
    if config.name not in ("", name):
        raise InvalidArgumentError(
            f"unexpected directory name '{name}' for model '{config.name}', directory name must equal model name"
        )
    if config.max_batch_size < 0:
        raise InvalidArgumentError(f"'max_batch_size' of model '{name}' is {config.max_batch_size}, less than 0")
    if config.sequence_batching.iterative_sequence:
        raise InvalidArgumentError(f"model '{name}' asks for iterative_sequence, which is not supported")
    check_fields(config, name)
    check_batching(name, config.dynamic_batching)
    default = Path(config.default_model_filename)
    if default.name != config.default_model_filename or default.name == "..":
        raise InvalidArgumentError(f"'default_model_filename' of model '{name}' is no file's name: {default}")

    for field, value, least, most in _numbers(config):
        if not least <= value <= most:
            raise InvalidArgumentError(f"'{field}' of model '{name}' is {value}, and must be from {least} to {most}")


def _numbers(config: Any) -> Iterator[tuple[str, int, int, int]]:
    """The numbers of *config* by their fields, with the least and the largest that each may be."""
    batching = config.dynamic_batching
    for size in batching.preferred_batch_size:
        yield "dynamic_batching.preferred_batch_size", size, 1, config.max_batch_size
    delay = "dynamic_batching.max_queue_delay_microseconds"
    yield delay, batching.max_queue_delay_microseconds, 0, _LONGEST_DELAY_US
    yield "dynamic_batching.priority_levels", batching.priority_levels, 0, _MOST_LEVELS
    for name, queue in policies_of(batching):
        policy = f"dynamic_batching.{name}"
        yield f"{policy}.max_queue_size", queue.max_queue_size, 0, _MOST_QUEUED
        yield f"{policy}.default_timeout_microseconds", queue.default_timeout_microseconds, 0, _LONGEST_TIMEOUT_US
    sequences, oldest = config.sequence_batching, config.sequence_batching.oldest
    idle = "sequence_batching.max_sequence_idle_microseconds"
    yield idle, sequences.max_sequence_idle_microseconds, 0, _LONGEST_TIMEOUT_US
    yield "sequence_batching.oldest.max_candidate_sequences", oldest.max_candidate_sequences, 0, MOST_SEQUENCES
    for size in oldest.preferred_batch_size:
        yield "sequence_batching.oldest.preferred_batch_size", size, 1, config.max_batch_size
    delay = "sequence_batching.oldest.max_queue_delay_microseconds"
    yield delay, oldest.max_queue_delay_microseconds, 0, _LONGEST_DELAY_US
    for group in config.instance_group:
        yield "instance_group.count", group.count, 0, _MOST_INSTANCES
    yield "model_warmup.count", sum(max(1, sample.count) for sample in config.model_warmup), 0, _MOST_WARM_RUNS
    for sample in config.model_warmup:
        rows = max(1, sample.batch_size) if config.max_batch_size > 0 else 1
        for each in sample.inputs.values():
            yield "model_warmup.inputs.dims", min(each.dims, default=0), 0, _MOST_WARM
        elements = sum(rows * math.prod(each.dims) for each in sample.inputs.values())
        yield "model_warmup.inputs", elements, 0, _MOST_WARM


def complete(config: object, name: str, signature: Signature, platform: str = _BACKEND) -> Any:
    """*config* with what the graph tells of it."""
    full = message("ModelConfig")()
    full.CopyFrom(config)
    full.name = name
    full.backend = full.backend or _BACKEND
    full.platform = full.platform or platform
    if full.version_policy.WhichOneof("policy_choice") is None:
        full.version_policy.latest.num_versions = 1
    if full.HasField("sequence_batching") and not full.sequence_batching.max_sequence_idle_microseconds:
        full.sequence_batching.max_sequence_idle_microseconds = _IDLE_US
    has_batch = full.max_batch_size > 0
    if not full.input:
        _describe(full.input, signature.inputs.values(), has_batch=has_batch)
    if not full.output:
        _describe(full.output, signature.outputs.values(), has_batch=has_batch)
    return full


def _describe(declared: Any, specs: Iterable[TensorSpec], *, has_batch: bool) -> None:
    for spec in specs:
        each = declared.add(name=spec.name, dims=spec.described_shape[1 if has_batch and spec.shape else 0 :])
        each.data_type = _number(each, spec.datatype)
        if spec.is_optional:
            each.optional = True


def _number(each: Any, datatype: str) -> int:
    values = type(each).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_name
    number: int = values["TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"].number
    return number


def versions_to_serve(config: Any, found: Iterable[int]) -> list[int]:
    """Those of the versions *found* that the version policy of *config* is for: by default the newest."""
    known = sorted(found)
    choice = config.version_policy.WhichOneof("policy_choice")
    if choice == "all":
        return known
    if choice == "specific":
        wanted = set(config.version_policy.specific.versions)
        return [version for version in known if version in wanted]
    count = config.version_policy.latest.num_versions if choice == "latest" else 1
    return known[-max(1, count) :]
