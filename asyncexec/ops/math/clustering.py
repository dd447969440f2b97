"""KmeansPlusPlusInitialization, KMC2ChainInitialization, NearestNeighbors (``clustering_ops.cc``)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.cancellation import raise_if_cancelled
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import KernelKind
from asyncexec.framework.kernel_registry import register_function
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.ops.array.array_common import check_memory
from asyncexec.ops.random.philox import Philox
from asyncexec.ops.random.simple_philox import SimplePhilox

_F32: Final = np.float32
_CHUNK: Final = 2**20  # distances at a time
_MASK: Final = 2**64 - 1
_MOST_RETRIES: Final = 2**16  # each looks at all points; a handful is of use
_MOST_DRAWS: Final = 2**12  # by distance, until one finds a point that is new


def _matrix(name: str, value: Array) -> None:
    if value.ndim != 2:
        raise InvalidArgumentError(f"Input {name} should be a matrix, not of shape {list(value.shape)}")


def _integer(name: str, value: np.generic) -> int:
    if np.ndim(value):
        raise InvalidArgumentError(f"Input {name} should be a scalar, not of shape {list(value.shape)}")
    return int(value)


class _Sampler:
    """Draws points, each as likely as it is far from those drawn before."""

    def __init__(self, points: Array, seed: int) -> None:
        self._points = points
        self._random = SimplePhilox(Philox(seed & _MASK, 0))
        self._half_norms = _F32(0.5) * (points * points).sum(1)
        self._nearest = np.full(len(points), np.inf, _F32)
        self._drawn: list[int] = []

    def _draw(self) -> int:
        count = len(self._points)
        if not self._drawn:
            return self._random.below_64(count)
        sums = self._nearest.cumsum(dtype=_F32)
        drawn = set(self._drawn)
        for number in itertools.count():
            # By what rounding leaves of small distances only those that are drawn already may be likely at all.
            if sums[-1] > 0 and np.isfinite(sums[-1]) and number < _MOST_DRAWS:
                place = _F32(self._random.float32()) * sums[-1]
                index = min(int(np.searchsorted(sums, place, "right")), count - 1)
            else:
                index = self._random.below_64(count)
            if index not in drawn:
                return index
        raise AssertionError("there are points that are not drawn")

    def _with(self, index: int) -> Array:
        y = self._points[index]
        return np.minimum(self._nearest, self._half_norms - self._points @ y + self._half_norms[index])

    def draw(self, retries: int) -> None:
        """The next point: the best of some."""
        best, least, nearest = 0, np.inf, self._nearest
        for _ in range(1 + retries):
            raise_if_cancelled()
            index = self._draw()
            distances = self._with(index)
            potential = float(distances.sum())
            if potential < least or not retries:
                best, least, nearest = index, potential, distances
        self._drawn.append(best)
        self._nearest = nearest

    def points(self) -> Array:
        """Those that were drawn."""
        return self._points[self._drawn]


def kmeans_plus_plus(points: Array, count: np.generic, seed: np.generic, retries: np.generic) -> Array:
    """The kernel of KmeansPlusPlusInitialization."""
    _matrix("points", points)
    wanted, start = _integer("num_to_sample", count), _integer("seed", seed)
    more = _integer("num_retries_per_sample", retries)
    if not len(points):
        raise InvalidArgumentError("Expected points.rows() > 0.")
    if not 0 < wanted <= len(points):
        raise InvalidArgumentError(f"Expected 0 < num_to_sample <= points.rows(): {wanted} vs {len(points)}.")
    if more > _MOST_RETRIES:
        raise InvalidArgumentError(f"Expected num_retries_per_sample <= {_MOST_RETRIES}, not {more}.")
    sampler = _Sampler(points, start)
    for _ in range(wanted):
        sampler.draw(more if more >= 0 else 2 + int(math.log(wanted)))
    return sampler.points()


def kmc2_chain(distances: ArrayOrScalar, seed: np.generic) -> np.generic:
    """The kernel of KMC2ChainInitialization: the end of a Markov chain over the candidates."""
    if distances.ndim != 1 or not distances.size:
        raise InvalidArgumentError(f"Input distances should be a vector of 1 or more, not {list(distances.shape)}")
    random = SimplePhilox(Philox(_integer("seed", seed) & _MASK, 0))
    selected, *candidates = distances.tolist()
    index = 0
    for number, distance in enumerate(candidates, 1):
        if distance > _F32(random.float32()) * _F32(selected):
            index, selected = number, distance
    return np.int64(index)


def nearest_neighbors(points: Array, centers: Array, k: np.generic) -> tuple[object, object]:
    """The kernel of NearestNeighbors: by squared distance, the nearest first."""
    _matrix("points", points)
    _matrix("centers", centers)
    wanted = _integer("k", k)
    if not len(points) or points.shape[1] != centers.shape[1] or wanted < 0:
        raise InvalidArgumentError(
            f"Expected points, as many dimensions of centers, and k >= 0: {list(points.shape)}, {list(centers.shape)}, "
            f"{wanted}"
        )
    found = min(wanted, len(centers))
    check_memory((len(points), found), np.dtype(np.int64))
    indices, distances = np.empty((len(points), found), np.int64), np.empty((len(points), found), _F32)
    half_norms = _F32(0.5) * (centers * centers).sum(1)
    step = max(1, _CHUNK // max(1, len(centers)))
    for start in range(0, len(points) if found else 0, step):
        part = points[start : start + step]
        halves = half_norms - part @ centers.T
        nearest = halves.argsort(1, kind="stable")[:, :found]
        own = _F32(0.5) * (part * part).sum(1, keepdims=True)
        indices[start : start + step] = nearest
        distances[start : start + step] = 2 * (np.take_along_axis(halves, nearest, 1) + own)
    return indices, distances


def sampled_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """As many points as asked for."""
    for index in (1, 2, 3):
        c.scalar(index)
    return [TensorShape([c.int_value(1), c.with_rank(0, 2)[1]])]


def chain_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """One index."""
    c.vector(0)
    c.scalar(1)
    return [SCALAR]


def neighbors_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The neighbours of each point, no more than there are centers."""
    points, centers = c.with_rank(0, 2), c.with_rank(1, 2)
    c.scalar(2)
    k = c.int_value(2)
    if k is not None and k < 0:
        raise InvalidArgumentError(f"Expected k >= 0, not {k}")
    found = None if k is None or centers[0] is None else min(k, centers[0])
    return [TensorShape([points[0], found])] * 2


for _name, _function in (
    ("KmeansPlusPlusInitialization", kmeans_plus_plus),
    ("KMC2ChainInitialization", kmc2_chain),
    ("NearestNeighbors", nearest_neighbors),
):
    register_function(_name, function=_function, kind=KernelKind.EXPENSIVE)
register_op(
    "KmeansPlusPlusInitialization",
    "points: float32, num_to_sample: int64, seed: int64, num_retries_per_sample: int64 -> samples: float32",
    shape=sampled_shape,
)
register_op("KMC2ChainInitialization", "distances: float32, seed: int64 -> index: int64", shape=chain_shape)
register_op(
    "NearestNeighbors",
    "points: float32, centers: float32, k: int64 -> nearest_center_indices: int64, nearest_center_distances: float32",
    shape=neighbors_shape,
)
