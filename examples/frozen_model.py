"""A frozen TensorFlow model with work of one's own before and after it, in one graph; no TensorFlow is needed.

The model takes 8 x 8 floats and gives probabilities.  Here it is fed 16 x 16 bytes, and gives words.  This program
is not async, so it uses a BlockingSession.  It needs ``pip install "asyncexec[tf]"``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import asyncexec as ax

DATA = Path(ax.__file__).parent / "cli" / "demo_data"
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def build_graph() -> ax.Graph:
    """Pixels of any number of images -> the two likeliest words for each, and how likely they are."""
    model = ax.load_graph_def(DATA / "model.pb")
    with ax.Graph() as graph:
        pixels = ax.placeholder(ax.uint8, [None, 16, 16], name="pixels")
        with ax.name_scope("before"):
            scaled = ax.expand_dims(ax.cast(pixels, ax.float32) / 255.0, -1)
            window = [1, 2, 2, 1]
            small = ax.create_op("AvgPool", [scaled], attrs={"ksize": window, "strides": window, "padding": "VALID"})
        (probabilities,) = ax.import_graph_def(
            model, name="model", input_map={"images:0": small}, return_elements=["probabilities:0"]
        )
        with ax.name_scope("after"):
            likelihoods, digits = ax.create_op("TopKV2", [probabilities, 2])
            words = ax.gather(ax.constant(WORDS), digits)
        ax.identity(words, name="words")
        ax.identity(likelihoods, name="likelihoods")
    return graph


def test_images() -> tuple[np.ndarray, np.ndarray]:
    """The images of the test set, twice as wide and high and in bytes, and the words for them."""
    with np.load(DATA / "test.npz") as data:
        large = data["images"][..., 0].repeat(2, axis=1).repeat(2, axis=2)
        return np.round(large * 255).astype(np.uint8), np.array(WORDS)[data["labels"]]


def main() -> None:
    images, labels = test_images()
    graph = build_graph()
    print(graph)
    with ax.BlockingSession(graph) as session:
        words, likelihoods = session.run(["words:0", "likelihoods:0"], {"pixels:0": images})
    for label, (first, second), (p, q) in list(zip(labels, words, likelihoods, strict=True))[:5]:
        print(f"{label}: {first.decode()} ({p:.1%}), else {second.decode()} ({q:.1%})")
    right = words[:, 0].astype(str) == labels
    print(f"{right.sum()} of {len(right)} right")


if __name__ == "__main__":
    main()
