"""Which of Triton's tests are run, on which models, and why others are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.service.triton_qa.repository import ModelFolder, add_sub, constant, identity, repeat, sequence

KINDS = {
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "object": "STRING",
    "bool": "BOOL",
}


@dataclass
class Suite:
    """A module of tests.

    Attributes:
        folder, module: where it is, below ``qa``.
        options: of ``asyncexec serve``.
        is_apart: whether each test has a service of its own.
        left_out: parts of the names of tests that cannot be run, with the reason; "" for those of another suite.
        reasons: parts of the names of tests that fail, with what is different here, by intent.
    """

    folder: str
    module: str
    models: Sequence[ModelFolder] = ()
    options: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    is_apart: bool = False
    left_out: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.folder}/{self.module}.py"


def _simple(name: str = "simple", kind: str = "INT32") -> ModelFolder:
    return add_sub(name, (kind, kind, kind), [16])


def simple() -> list[ModelFolder]:
    """The models of Triton's documentation, but for those of images."""
    return [
        _simple(),
        _simple("simple_int8", "INT8"),
        _simple("simple_string", "STRING"),
        identity("simple_identity", "STRING", [-1]),
        sequence("simple_sequence"),
        sequence("simple_dyna_sequence", "UINT64"),
        sequence("simple_string_dyna_sequence", "STRING"),
    ]


def examples() -> list[ModelFolder]:
    """What the examples of clients ask, eight models, as some of them expect."""
    return [*simple()[:-1], repeat("repeat_int32"), identity("custom_identity_int32", "INT32", [-1])]


QUEUE = {
    "dynamic_batching": {
        "max_queue_delay_microseconds": 1000000,
        "preferred_batch_size": [8],
        "default_queue_policy": {"max_queue_size": 1},
    }
}


def identities() -> list[ModelFolder]:
    """What L0_http asks."""
    return [
        identity("onnx_zero_1_float32", "FP32", [-1]),
        identity("onnx_zero_1_object", "STRING", [-1]),
        identity("onnx_zero_1_float16", "FP16", [-1, -1]),
        identity("onnx_zero_3_float32", "FP32", [-1], count=3),
        identity("onnx_zero_1_object_1_element", "STRING", [1]),
        identity("onnx_zero_1_float32_queue", "FP32", [-1], **QUEUE),
        identity("simple_identity", "STRING", [-1]),
        identity("simple_identity_int64", "INT64", [-1]),
    ]


def repeats() -> list[ModelFolder]:
    """What L0_decoupled asks: ensembles are one graph each."""
    plain = [repeat(name) for name in ("repeat_int32", "simple_repeat", "sequence_repeat")]
    squares = [repeat(name, "square") for name in ("repeat_square", "nested_square")]
    return [*plain, *squares, repeat("fan_repeat", "double")]


SWAPPED = ("uint8", "int8", "int16", "int32", "float32")  # those that have three versions, if they are of one type


def sums() -> list[ModelFolder]:
    """What L0_infer asks: the types that it has of onnx, with a batch and without."""
    whole = ("int8", "int16", "int32", "int64")
    unsigned = ("uint8", "uint16", "uint32", "uint64")
    floats = ("float16", "float32", "float64")
    triples = {(kind, kind, kind) for kind in (*whole, *unsigned, *floats, "object")}
    triples |= {("int32", a, b) for a in (*whole, *floats, "object") for b in (*whole, *floats, "object")}
    triples |= {("object", a, b) for a in ("int32", "object") for b in ("int32", "object")}
    triples |= {("float32", a, b) for a in ("int32", "float32", "object") for b in ("int32", "float32", "object")}
    triples |= {("int8", "int32", "int32"), ("float16", "float32", "float32")}
    found = []
    for triple in sorted(triples):
        kinds = KINDS[triple[0]], KINDS[triple[1]], KINDS[triple[2]]
        for batch, mark in ((8, ""), (0, "_nobatch")):
            name = f"onnx{mark}_{'_'.join(triple)}"
            versions = (1, 2, 3) if triple[0] in SWAPPED and len(set(triple)) == 1 else (1,)
            found.append(add_sub(name, kinds, [16], batch=batch, versions=versions))
    return found


RANK_2 = (("float16", 1), ("float16", 3), ("object", 3))


def zeros() -> list[ModelFolder]:
    """What L0_infer_zero asks: identities, which stand for its ensembles of identities, too."""
    found = []
    for prefix in ("onnx", "simple_zero", "sequence_zero", "fan_zero"):
        for kind in ("float32", "float16", "object", "bool"):
            for count in (1, 3):
                for batch, mark in ((8, ""), (0, "_nobatch")):
                    rank = 2 if (kind, count) in RANK_2 else 1
                    name = f"{prefix}{mark}_zero_{count}_{kind}"
                    found.append(identity(name, KINDS[kind], [-1] * rank, count=count, batch=batch))
    return found


def validated() -> list[ModelFolder]:
    """What L0_input_validation asks."""

    def of(name: str, count: int, optional: Sequence[str]) -> ModelFolder:
        return constant(name, ["1.0"], {f"INPUT{i}": ("FP32", [-1]) for i in range(count)}, 1, optional)

    return [
        of("input_all_required", 3, ()),
        of("input_optional", 4, ("INPUT3",)),
        of("input_all_optional", 3, ("INPUT0", "INPUT1", "INPUT2")),
        identity("pt_identity", "FP32", [8]),
        add_sub("onnx_object_int32_int32", ("STRING", "INT32", "INT32"), [16]),
        *(identity(f"onnx_zero_1_{kind}", KINDS[kind], [-1]) for kind in ("float32", "object", "bool")),
    ]


SLOW = identity("custom_identity_int32", "INT32", [-1], batch=1024, delay_s=3.0)
SLOWER = identity("custom_identity_int32", "INT32", [-1], batch=1024, delay_s=10.0)
CUDA = "CUDA is not to be had"
EXPLICIT = ("--model-control", "explicit", "--load-all")
PARAMETERS = "its model reads the parameters of requests, which graphs do not get"
SHARED = ("--shared-memory",)
NAMED = {
    "get_server_metadata": "the name of the server is asyncexec",
    "load_model": "another text: models are not loaded on demand",
}
SETTINGS = {"settings": "its server is started with Triton's --trace-config"}
MEMORY = {"cuda": CUDA, "register_system": "the status is INVALID_ARGUMENT"}
TEXT = "another text"
OTHER = ""  # it is run with other options
FILES = "loads of files that a client sends ('file:' parameters) are refused as not implemented"
RESTRICTED = "there are no tokens for single kinds of calls: a token is for all"
WHITE_BOX = "it looks into Triton's scheduler, by an environment variable of its process"

SUITES = [
    Suite(
        "L0_http",
        "http_test",
        identities(),
        EXPLICIT,
        left_out={"test_loading_large_invalid_model": "its body has 3 GB, and the client needs 10 GB of memory"},
        reasons={
            "test_buffer_size_overflow": TEXT,
            "test_byte_too_many_elements": "a body of BYTES is taken as one element where the model takes any number",
            "chunked_manually": "what has both Content-Length and Transfer-Encoding is refused: it may be smuggled",
            "test_descriptive_status_code": "requests that a batch is being made of are not in the queue",
            "test_json_recursion_depth_limit": "JSON that is nested deeper than 100 levels is taken",
            "test_load_oversized_file_parameter": FILES,
            "test_negative_dimensions": "the status is 400: it is the client's error",
            "deeply_nested_json": TEXT,
        },
    ),
    Suite("L0_http", "python_http_aio_test", simple(), SHARED, reasons={**NAMED, **SETTINGS, **MEMORY}),
    Suite(
        "L0_http",
        "http_input_size_limit_test",
        identities(),
        left_out=dict.fromkeys(("large_input", "no_leak"), OTHER),
        reasons={"": "the status is 413"},
    ),
    Suite(
        "L0_http",
        "http_input_size_limit_test",
        identities(),
        ("--max-body-mb", "128"),
        left_out=dict.fromkeys(("default_limit", "expansion", "large_string"), OTHER),
        reasons={"": "the status is 413"},
    ),
    Suite("L0_grpc", "python_grpc_aio_test", [*simple(), SLOW], SHARED, reasons={**NAMED, **SETTINGS, **MEMORY}),
    Suite(
        "L0_grpc",
        "python_unit_test",
        simple(),
        EXPLICIT,
        left_out={"RestrictedProtocolTest": RESTRICTED},
        reasons={"many_elements": "a tensor of BYTES has 4,194,304 elements at most"},
    ),
    Suite(
        "L0_input_validation",
        "input_validation_test",
        validated(),
        EXPLICIT,
        left_out={"tensor_size": "it is for shape tensors of TensorRT"},
        reasons={
            "shape_validation": TEXT,
            "empty_load": TEXT,
            "whitespace_only_load": TEXT,
            "invalid_load": TEXT,
        },
    ),
    Suite("L0_client_timeout", "client_infer_timeout_test", [SLOW]),
    Suite(
        "L0_request_cancellation",
        "grpc_cancellation_test",
        [SLOWER],
        left_out={"at_step_start": WHITE_BOX, "during_cancellation": WHITE_BOX, "cancellation_before": WHITE_BOX},
    ),
    Suite(
        "L0_infer",
        "infer_test",
        sums(),
        environment={"BACKENDS": "onnx", "ENSEMBLES": "0"},
    ),
    Suite("L0_infer_zero", "infer_zero_test", zeros(), environment={"BACKENDS": "onnx"}),
    Suite(
        "L0_client_nobatch",
        "client_test",
        [
            add_sub(f"onnx{mark}_int32_int8_int8", ("INT32", "INT8", "INT8"), [16], batch=batch)
            for batch, mark in ((8, ""), (0, "_nobatch"))
        ],
    ),
    Suite("L0_string_io", "string_client_test", [identity("string_identity", "STRING", [-1], batch=0), *simple()]),
    Suite(
        "L0_decoupled",
        "decoupled_test",
        repeats(),
        left_out={
            "NonDecoupledTest": "it is for a model that has several responses and is not decoupled",
            "one_to_multi_many": WHITE_BOX,
        },
    ),
    Suite("L0_logging", "logging_endpoint_test", simple(), reasons=SETTINGS),
    Suite("L0_trace", "trace_endpoint_test", simple(), reasons=SETTINGS),
    *(
        Suite(
            "L0_shared_memory",
            "shared_memory_test",
            simple(),
            SHARED,
            {"CLIENT_TYPE": protocol},
            is_apart=True,
            left_out={
                f"_{other}": OTHER,
                "shm_disabled_by_default": "it is for a service without shared memory",
                "during_inference": "its model has to be slow, by a parameter of Triton's backend",
                "large_shm": "its model is one of Triton's Python backend",
            },
            reasons={
                "infer_integer_overflow": TEXT,
                "infer_offset_out_of_bound": TEXT,
                "test_register_invalid_shm_key": TEXT,
                "test_register_reserved_names": "no names are reserved: there is no Python backend",
                "test_too_big_shm": TEXT,
            },
        )
        for protocol, other in (("http", "grpc"), ("grpc", "http"))
    ),
]

# Tests that are not run at all.
NOT_RUN = {
    "L0_http/generate_endpoint_test.py": PARAMETERS,
    "L0_http/http_restricted_api_test.py": RESTRICTED,
    "L0_client_timeout/client_non_infer_timeout_test.py": "it asks a server that an environment variable makes slow",
    "L0_sequence_batcher/sequence_batcher_test.py": WHITE_BOX,
    "L0_batcher/batcher_test.py": WHITE_BOX,
    "L0_lifecycle/lifecycle_test.py": "it moves files of Triton's data sets and greps Triton's log",
    "L0_nan_inf/nan_inf_test.py": "it is for numpy 1",
    "L0_query/query_e2e.py": "it asks Triton in which kind of memory a backend puts outputs",
    "L0_large_payload/large_payload_test.py": "its requests have 1.9 and 3 GB, and need 20 GB of memory",
}

EXAMPLE_OPTIONS: dict[str, Sequence[str]] = {
    "memory_growth_test.py": ("-r", "20"),
}
NO_EXAMPLE = {
    "ensemble_image_client.py": "it needs a model of images that is not public",
    "grpc_client.py": "it needs a model of images that is not public",
    "grpc_image_client.py": "it needs a model of images that is not public",
    "image_client.py": "it needs a model of images that is not public",
    "simple_grpc_cudashm_client.py": CUDA,
    "simple_http_cudashm_client.py": CUDA,
}
EXAMPLE_REASONS = {
    "simple_grpc_health_metadata.py": NAMED["get_server_metadata"],
    "simple_grpc_model_control.py": FILES,
    "simple_http_health_metadata.py": NAMED["get_server_metadata"],
    "simple_http_model_control.py": FILES,
}
