"""Makes the files of one model that is measured: a frozen graph by TensorFlow, and the same network as ONNX by torch.

``python -m benchmarks.model_files graph NAME FOLDER`` and then ``... onnx NAME FOLDER`` are processes of their own:
TensorFlow builds models eagerly, what measures does not, and builds of torch for CUDA crash in a process that has
loaded TensorFlow.  Weights are random.  A builder gives the model, and the shape of its input but for the batch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

WIDTH: Final = 768  # of BERT
LAYERS: Final = 4
TOKENS: Final = 128
SEQUENCE: Final = (64, 32)  # steps and features of a recurrent network
UNITS: Final = 64
DECODED: Final = 24  # tokens
IMAGES: Final[Mapping[str, tuple[str, str, int]]] = {  # in Keras, in torchvision, pixels of a side
    "resnet50": ("ResNet50", "resnet50", 224),
    "mobilenetv2": ("MobileNetV2", "mobilenet_v2", 224),
    "efficientnetb0": ("EfficientNetB0", "efficientnet_b0", 224),
    "densenet121": ("DenseNet121", "densenet121", 224),
    "inceptionv3": ("InceptionV3", "inception_v3", 299),
}


def write_graph(name: str, folder: Path) -> None:
    """Write ``model.pb`` and ``about.json`` by TensorFlow."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras

    keras.utils.set_random_seed(0)
    if name in IMAGES:
        keras_name, _, side = IMAGES[name]
        _freeze(getattr(keras.applications, keras_name)(weights=None), (side, side, 3), folder)
    elif name == "training":
        _training_step(folder)
    else:
        model, shape = _KERAS[name]()
        _freeze(model, shape, folder, lowers=name != "gru")


def write_onnx(name: str, folder: Path) -> None:
    """Write ``model.onnx`` beside the graph, where torch is installed and has the network."""
    module = _torch_module(name)
    if module is not None:
        shape = json.loads((folder / "about.json").read_text())["shape"]
        _export(module, _onnx_shape(shape), folder)


def _freeze(model: Any, shape: Sequence[int], folder: Path, *, lowers: bool = False) -> None:
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    spec = tf.TensorSpec([None, *shape], tf.float32, name="x")
    call = tf.function(lambda x: tf.identity(model(x), name="y"), input_signature=[spec])
    frozen = convert_variables_to_constants_v2(call.get_concrete_function(), lower_control_flow=lowers)
    (folder / "model.pb").write_bytes(frozen.graph.as_graph_def().SerializeToString())
    _tell(folder, frozen.inputs[0].name, frozen.outputs[0].name, shape)


def _tell(folder: Path, takes: str, gives: str, shape: Sequence[int], **more: Any) -> None:
    (folder / "about.json").write_text(json.dumps({"input": takes, "output": gives, "shape": list(shape), **more}))


def _unet() -> tuple[Any, Sequence[int]]:
    import keras
    from keras import layers as la

    def twice(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = la.Conv2D(filters, 3, padding="same", activation="relu")(x)
        return x

    x = given = keras.Input([128, 128, 3])
    kept = []
    for filters in (16, 32, 64):
        x = twice(x, filters)
        kept.append(x)
        x = la.MaxPooling2D(2)(x)
    x = twice(x, 128)
    for filters, skipped in zip((64, 32, 16), reversed(kept), strict=True):
        x = la.Concatenate()([la.Conv2DTranspose(filters, 2, strides=2)(x), skipped])
        x = twice(x, filters)
    return keras.Model(given, la.Conv2D(1, 1, activation="sigmoid")(x)), (128, 128, 3)


def _encoder(x: Any, layers: int, heads: int, width: int) -> Any:
    from keras import layers as la

    for _ in range(layers):
        y = la.LayerNormalization(epsilon=1e-6)(x)
        x = la.Add()([x, la.MultiHeadAttention(heads, width // heads)(y, y)])
        y = la.LayerNormalization(epsilon=1e-6)(x)
        y = la.Dense(4 * width, activation="gelu")(y)
        x = la.Add()([x, la.Dense(width)(y)])
    return la.LayerNormalization(epsilon=1e-6)(x)


def _bert() -> tuple[Any, Sequence[int]]:
    import keras

    given = keras.Input([TOKENS, WIDTH])
    return keras.Model(given, _encoder(given, LAYERS, 12, WIDTH)), (TOKENS, WIDTH)


def _vit() -> tuple[Any, Sequence[int]]:
    import keras
    from keras import layers as la

    given = keras.Input([224, 224, 3])
    x = la.Reshape([196, 192])(la.Conv2D(192, 16, strides=16)(given))
    x = _encoder(x, 12, 3, 192)
    return keras.Model(given, la.Dense(1000)(la.GlobalAveragePooling1D()(x))), (224, 224, 3)


def _bilstm() -> tuple[Any, Sequence[int]]:
    import keras
    from keras import layers as la

    given = keras.Input(SEQUENCE)
    return keras.Model(given, la.Bidirectional(la.LSTM(UNITS))(given)), SEQUENCE


def _gru() -> tuple[Any, Sequence[int]]:
    import keras
    from keras import layers as la

    given = keras.Input(SEQUENCE)
    return keras.Model(given, la.GRU(UNITS)(given)), SEQUENCE


def _greedy() -> tuple[Any, Sequence[int]]:
    import tensorflow as tf

    random = np.random.default_rng(0)
    table, kernel, recurrent, out = (
        tf.constant(random.normal(size=size, scale=0.1).astype(np.float32))
        for size in ((1000, 64), (64, 3 * UNITS), (UNITS, 3 * UNITS), (UNITS, 1000))
    )

    def step(i: Any, state: Any, tokens: Any, found: Any) -> Any:
        x = tf.split(tf.gather(table, tokens) @ kernel, 3, 1)
        h = tf.split(state @ recurrent, 3, 1)
        update, reset = tf.sigmoid(x[0] + h[0]), tf.sigmoid(x[1] + h[1])
        state = update * state + (1 - update) * tf.tanh(x[2] + reset * h[2])
        tokens = tf.argmax(state @ out, 1, tf.int32)
        return i + 1, state, tokens, found.write(i, tokens)

    def decode(state: Any) -> Any:
        found = tf.TensorArray(tf.int32, DECODED)
        first = tf.zeros(tf.shape(state)[:1], tf.int32)
        return tf.while_loop(lambda i, *_: i < DECODED, step, (0, state, first, found))[3].stack()

    return decode, (UNITS,)


def _training_step(folder: Path) -> None:
    import tensorflow.compat.v1 as v1

    with v1.Graph().as_default() as graph:
        x = v1.placeholder(v1.float32, [None, 784], name="x")
        y = v1.nn.relu(x @ v1.get_variable("w1", [784, 256], use_resource=True))
        logits = y @ v1.get_variable("w2", [256, 10], use_resource=True)
        labels = v1.cast(v1.reduce_sum(x, 1) > 0, v1.int32)
        loss = v1.reduce_mean(v1.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        with v1.control_dependencies([v1.train.AdamOptimizer().minimize(loss)]):
            v1.identity(loss, name="y")
        v1.global_variables_initializer()
    (folder / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    _tell(folder, "x:0", "y:0", (784,), initializer="init")


_KERAS: Final[Mapping[str, Callable[[], tuple[Any, Sequence[int]]]]] = {
    "unet": _unet,
    "bert": _bert,
    "vit_tiny": _vit,
    "bilstm": _bilstm,
    "gru": _gru,
    "greedy": _greedy,
}


def _onnx_shape(shape: Sequence[int]) -> Sequence[int]:
    """*shape* as torch wants it: channels first in images."""
    return (shape[2], *shape[:2]) if len(shape) == 3 else shape


def _torch_module(name: str) -> Any:
    """The network in torch; None where there is none, or no torch."""
    try:
        import torch

        if name in IMAGES:
            found = getattr(_torchvision(torch).models, IMAGES[name][1])
            return found(weights=None, **({"init_weights": False} if name == "inceptionv3" else {}))
    except (ImportError, RuntimeError):  # RuntimeError: a torchvision that is built for another torch
        return None
    if name in ("bert", "vit_tiny"):
        return _torch_encoder(torch, is_vit=name == "vit_tiny")
    if name in ("bilstm", "gru"):
        kind = torch.nn.LSTM if name == "bilstm" else torch.nn.GRU
        return _last_of(torch, kind(SEQUENCE[1], UNITS, batch_first=True, bidirectional=name == "bilstm"))
    return _torch_unet(torch) if name == "unet" else None


def _torchvision(torch: Any) -> Any:
    """The package; where its C++ part is built for another torch, with the ops declared that its networks need not."""
    try:
        import torchvision
    except RuntimeError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")
        import torchvision
    return torchvision


def _torch_encoder(torch: Any, *, is_vit: bool) -> Any:
    width, heads, layers = (192, 3, 12) if is_vit else (WIDTH, 12, LAYERS)
    layer = torch.nn.TransformerEncoderLayer(
        width, heads, 4 * width, activation="gelu", batch_first=True, norm_first=True
    )
    encoder = torch.nn.TransformerEncoder(layer, layers, torch.nn.LayerNorm(width), enable_nested_tensor=False)
    if not is_vit:
        return encoder

    class Vit(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.encoder = torch.nn.Conv2d(3, width, 16, 16), encoder
            self.head = torch.nn.Linear(width, 1000)

        def forward(self, x: Any) -> Any:
            return self.head(self.encoder(self.patches(x).flatten(2).transpose(1, 2)).mean(1))

    return Vit()


def _last_of(torch: Any, recurrent: Any) -> Any:
    class Last(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.recurrent = recurrent

        def forward(self, x: Any) -> Any:
            return self.recurrent(x)[0][:, -1]

    return Last()


def _torch_unet(torch: Any) -> Any:
    nn = torch.nn

    def twice(before: int, filters: int) -> Any:
        parts = [nn.Conv2d(before, filters, 3, padding=1), nn.ReLU(), nn.Conv2d(filters, filters, 3, padding=1)]
        return nn.Sequential(*parts, nn.ReLU())

    class UNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList(map(twice, (3, 16, 32), (16, 32, 64)))
            self.middle = twice(64, 128)
            self.wider = nn.ModuleList(nn.ConvTranspose2d(2 * n, n, 2, 2) for n in (64, 32, 16))
            self.up = nn.ModuleList(twice(2 * n, n) for n in (64, 32, 16))
            self.last = nn.Conv2d(16, 1, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for part in self.down:
                x = part(x)
                kept.append(x)
                x = nn.functional.max_pool2d(x, 2)
            x = self.middle(x)
            for wider, part in zip(self.wider, self.up, strict=True):
                x = part(torch.cat([wider(x), kept.pop()], 1))
            return torch.sigmoid(self.last(x))

    return UNet()


def _export(module: Any, shape: Sequence[int], folder: Path) -> None:
    import torch

    given = torch.zeros(2, *shape)
    batch = {0: torch.export.Dim("batch", min=1, max=64)}
    program = torch.onnx.export(
        module.eval(), (given,), input_names=["x"], output_names=["y"], dynamic_shapes=(batch,), dynamo=True
    )
    program.save(str(folder / "model.onnx"))


if __name__ == "__main__":
    write = {"graph": write_graph, "onnx": write_onnx}[sys.argv[1]]
    write(sys.argv[2], Path(sys.argv[3]))
