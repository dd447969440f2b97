"""Features of classical models (``ai.onnx.ml``): labels, categories, vectors and scales.

A map is a Python ``dict``; strings are ``bytes``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.onnx.arrays import need, zeros
from asyncexec.ops.onnx.onnx_kernels import ML_DOMAIN, OnnxNode, onnx_kernel
from asyncexec.process.free_memory import check_array


@onnx_kernel("ArrayFeatureExtractor", domain=ML_DOMAIN)
def make_array_feature_extractor(node: OnnxNode) -> Kernel:
    """The kernel of ArrayFeatureExtractor: some columns; of a vector, as a matrix of one row."""

    def kernel(x: Array, indices: Array) -> tuple[Array]:
        need(x.ndim > 0, "X must not be a scalar")
        picked = np.reshape(indices, -1)
        need(
            not picked.size or (picked.min() >= 0 and picked.max() < x.shape[-1]),
            f"an index is none of {x.shape[-1]} columns",
        )
        out = np.take(x, picked, -1)
        return (out.reshape(1, -1) if x.ndim == 1 else out,)

    return kernel


@onnx_kernel("Binarizer", domain=ML_DOMAIN)
def make_binarizer(node: OnnxNode) -> Kernel:
    """The kernel of Binarizer."""
    threshold = node.attr("threshold", 0.0)
    return lambda x: (np.asarray(x > threshold).astype(x.dtype),)


def _found(x: object, table: Mapping[Any, object], default: object, dtype: Any) -> Array:
    """What *table* has for each element of *x*; NaN is one key."""
    cells = np.asarray(x)
    keys = cells.reshape(-1).tolist()
    if cells.dtype.kind == "f":
        keys = [None if math.isnan(key) else key for key in keys]
    out = np.empty(len(keys), dtype)
    for i, key in enumerate(keys):
        out[i] = table.get(key, default)
    return out.reshape(cells.shape)


@onnx_kernel("CategoryMapper", domain=ML_DOMAIN)
def make_category_mapper(node: OnnxNode) -> Kernel:
    """The kernel of CategoryMapper: strings to integers, or back."""
    strings, numbers = node.attr("cats_strings", []), node.attr("cats_int64s", [])
    need(len(strings) == len(numbers), "cats_strings and cats_int64s must be equally long")
    to_numbers, to_strings = dict(zip(strings, numbers, strict=True)), dict(zip(numbers, strings, strict=True))
    number, string = node.attr("default_int64", -1), node.attr("default_string", b"_Unused")

    def kernel(x: object) -> tuple[Array]:
        if np.asarray(x).dtype.kind in "iu":
            return (_found(x, to_strings, string, object),)
        return (_found(x, to_numbers, number, np.int64),)

    return kernel


_KINDS: Final[Sequence[tuple[str, Any, Any]]] = (
    ("strings", object, b"_Unused"),
    ("int64s", np.int64, -1),
    ("floats", np.float32, -0.0),
)


@onnx_kernel("LabelEncoder", since=2, domain=ML_DOMAIN)
def make_label_encoder(node: OnnxNode) -> Kernel:
    """The kernel of LabelEncoder: a table from keys to values of any types."""
    keys = next((node.attrs[f"keys_{kind}"] for kind, *_ in _KINDS if f"keys_{kind}" in node.attrs), None)
    single = {"strings": "default_string", "int64s": "default_int64", "floats": "default_float"}
    values, default, dtype = None, None, None
    for kind, kind_dtype, unless in _KINDS:
        if f"values_{kind}" in node.attrs:
            values, dtype = node.attrs[f"values_{kind}"], kind_dtype
            default = node.attr(single[kind], unless)
    if "keys_tensor" in node.attrs:
        keys = _plain(node.attrs["keys_tensor"])
    if "values_tensor" in node.attrs:
        tensor = np.asarray(node.attrs["values_tensor"])
        values, dtype = _plain(tensor), tensor.dtype
        default = {"i": -1, "f": -0.0}.get(tensor.dtype.kind, b"_Unused")
    if "default_tensor" in node.attrs:
        default = _plain(node.attrs["default_tensor"])[0]
    if keys is None or values is None or len(keys) != len(values):
        raise InvalidArgumentError("keys and values must be given, and be equally long")
    if dtype is not None and np.dtype(dtype).kind in "UO":
        dtype = object
    # Keys that are floats are so in single precision, as inputs are.
    told = [None if isinstance(key, float) and math.isnan(key) else key for key in keys]
    table = dict(zip(told, values, strict=True))
    return lambda x: (_found(x, table, default, dtype),)


def _plain(tensor: object) -> list[object]:
    found = np.asarray(tensor).reshape(-1).tolist()
    return [one.encode() if isinstance(one, str) else one for one in found]


@onnx_kernel("LabelEncoder", domain=ML_DOMAIN)
def make_first_label_encoder(node: OnnxNode) -> Kernel:
    """The kernel of LabelEncoder before 2: strings to their place in a list, or back."""
    classes = node.attr("classes_strings", [])
    places, names = {name: i for i, name in enumerate(classes)}, dict(enumerate(classes))
    number, string = node.attr("default_int64", -1), node.attr("default_string", b"_Unused")

    def kernel(x: object) -> tuple[Array]:
        if np.asarray(x).dtype.kind in "iu":
            return (_found(x, names, string, object),)
        return (_found(x, places, number, np.int64),)

    return kernel


@onnx_kernel("CastMap", domain=ML_DOMAIN)
def make_cast_map(node: OnnxNode) -> Kernel:
    """The kernel of CastMap: the values of a map in the order of its keys, or each at the place that is its key."""
    to, form, length = node.text("cast_to", "TO_FLOAT"), node.text("map_form", "DENSE"), node.attr("max_map", 1)
    casts: dict[str, tuple[Any, Callable[[Any], object]]] = {
        "TO_FLOAT": (np.float32, float),
        "TO_INT64": (np.int64, lambda value: int(float(value))),
        "TO_STRING": (object, lambda value: value if isinstance(value, bytes) else str(value).encode()),
    }
    need(to in casts and form in ("DENSE", "SPARSE"), f"cast_to {to!r} or map_form {form!r} is unknown")
    check_array((length if form == "SPARSE" else 0,), np.dtype(object))
    dtype, cast = casts[to]

    def kernel(x: Mapping[int, object]) -> tuple[Array]:
        if form == "DENSE":
            values = [cast(x[key]) for key in sorted(x)]
        else:
            need(not x or (min(x) >= 0 and max(x) < length), f"a key of the map is not below max_map, {length}")
            values = [cast(x[key]) if key in x else cast(0) if to != "TO_STRING" else b"" for key in range(length)]
        out = np.empty((1, len(values)), dtype)
        out[0, :] = values
        return (out,)

    return kernel


@onnx_kernel("DictVectorizer", domain=ML_DOMAIN)
def make_dict_vectorizer(node: OnnxNode) -> Kernel:
    """The kernel of DictVectorizer: the values of a map, in the order of a vocabulary."""
    words = list(node.attr("string_vocabulary", ())) or list(node.attr("int64_vocabulary", ()))

    def kernel(x: Mapping[object, object]) -> tuple[Array]:
        some = next(iter(x.values()), np.float32(0))
        dtype = np.dtype(object) if isinstance(some, bytes) else np.asarray(some).dtype
        out = np.empty((1, len(words)), dtype)
        for i, word in enumerate(words):
            out[0, i] = x.get(word, b"" if dtype.hasobject else 0)
        return (out,)

    return kernel


@onnx_kernel("FeatureVectorizer", domain=ML_DOMAIN)
def make_feature_vectorizer(node: OnnxNode) -> Kernel:
    """The kernel of FeatureVectorizer: columns side by side, each input cut or filled to its width."""
    widths = tuple(node.attr("inputdimensions", ()))

    def kernel(*inputs: Array) -> tuple[Array]:
        need(len(inputs) == len(widths), f"inputdimensions must have {len(inputs)} numbers, not {list(widths)}")
        need(all(np.ndim(one) in (1, 2) for one in inputs), "inputs must have 1 or 2 axes")
        rows = {len(one) if one.ndim == 2 else 1 for one in inputs}
        need(len(rows) == 1, f"inputs have different numbers of rows: {sorted(rows)}")
        out = zeros((rows.pop(), sum(widths)), np.float32)
        start = 0
        for one, width in zip(inputs, widths, strict=True):
            part = one.reshape(len(out), -1)[:, :width]
            out[:, start : start + part.shape[1]] = part
            start += width
        return (out,)

    return kernel


@onnx_kernel("Imputer", domain=ML_DOMAIN)
def make_imputer(node: OnnxNode) -> Kernel:
    """The kernel of Imputer: other values for what is missing, one or one a column."""
    is_float = bool(node.attr("imputed_value_floats"))
    values = node.attr("imputed_value_floats") if is_float else node.attr("imputed_value_int64s")
    missing = node.attr("replaced_value_float", 0.0) if is_float else node.attr("replaced_value_int64", 0)
    need(bool(values), "imputed_value_floats or imputed_value_int64s must be given")

    def kernel(x: Array) -> tuple[Array]:
        need(
            x.ndim > 0 and len(values) in (1, x.shape[-1]), f"there are {len(values)} values for shape {list(x.shape)}"
        )
        where = np.isnan(x) if isinstance(missing, float) and math.isnan(missing) else x == missing
        return (np.asarray(np.where(where, np.asarray(values, x.dtype), x)),)

    return kernel


@onnx_kernel("Normalizer", domain=ML_DOMAIN)
def make_normalizer(node: OnnxNode) -> Kernel:
    """The kernel of Normalizer: each row divided by its norm; rows of zeros stay."""
    norm = node.text("norm", "MAX")
    need(norm in ("MAX", "L1", "L2"), f"norm must be MAX, L1 or L2, not {norm!r}")

    def kernel(x: Array) -> tuple[Array]:
        need(x.ndim in (1, 2), f"X must have 1 or 2 axes, not shape {list(x.shape)}")
        cells = x.astype(np.float32)
        if norm == "L2":
            length = np.sqrt((cells * cells).sum(-1, keepdims=True))
        else:
            length = np.abs(cells).sum(-1, keepdims=True) if norm == "L1" else cells.max(-1, keepdims=True)
        return (cells / np.where(length == 0, np.float32(1), length),)

    return kernel


@onnx_kernel("OneHotEncoder", domain=ML_DOMAIN)
def make_one_hot_encoder(node: OnnxNode) -> Kernel:
    """The kernel of OneHotEncoder."""
    categories = list(node.attr("cats_strings", ())) or list(node.attr("cats_int64s", ()))
    table, allows_others = {one: i for i, one in enumerate(categories)}, bool(node.attr("zeros", 1))

    def kernel(x: object) -> tuple[Array]:
        cells = np.asarray(x)
        places = _found(cells.astype(np.int64) if cells.dtype.kind in "fiu" else cells, table, -1, np.int64)
        need(allows_others or not (places < 0).any(), "a value is none of the categories")
        out = zeros((*places.shape, len(table)), np.float32)
        np.put_along_axis(out, np.maximum(places, 0)[..., None], (places >= 0)[..., None].astype(np.float32), -1)
        return (out,)

    return kernel


@onnx_kernel("Scaler", domain=ML_DOMAIN)
def make_scaler(node: OnnxNode) -> Kernel:
    """The kernel of Scaler: ``(x - offset) * scale``, of all columns or of each."""
    scale, offset = (np.asarray(node.attr(name, ()), np.float32) for name in ("scale", "offset"))

    def kernel(x: Array) -> tuple[Array]:
        for what, values in (("scale", scale), ("offset", offset)):
            need(
                values.size == 1 or values.shape == x.shape[-1:], f"{what} has {values.size} numbers, X {list(x.shape)}"
            )
        return ((x.astype(np.float32) - offset) * scale,)

    return kernel


@onnx_kernel("ZipMap", domain=ML_DOMAIN)
def make_zip_map(node: OnnxNode) -> Kernel:
    """The kernel of ZipMap: a list of maps from labels to the values of a row."""
    labels = list(node.attr("classlabels_strings", ())) or list(node.attr("classlabels_int64s", ()))

    def kernel(x: Array) -> tuple[list[dict[Any, object]]]:
        need(x.ndim in (1, 2) and x.shape[-1] == len(labels), f"shape {list(x.shape)} is not for {len(labels)} labels")
        return ([dict(zip(labels, row, strict=True)) for row in x.reshape(-1, len(labels))],)

    return kernel
