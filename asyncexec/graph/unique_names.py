"""Names for imported nodes that collide with nothing.

After ``GraphConstructor::UniquifyNames`` in ``tensorflow/core/common_runtime/graph_constructor.cc``.  A name that is
taken, or is a prefix of one (``a`` where ``a/b`` is), gets ``_1``, ``_2``, ... until nobody has it, in either graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping


def unique_names(names: Collection[str], prefix: str, taken: Collection[str]) -> Mapping[str, str]:
    """For each of *names* (no two alike) the name it gets below *prefix* in a graph that has the names *taken*."""
    in_graph = {*taken, *_prefixes(taken)}
    wanted = {prefix + name for name in names}
    blocked = {*wanted, *_prefixes(wanted)}
    next_suffix: dict[str, int] = {}
    chosen: dict[str, str] = {}
    for name in names:
        full = candidate = prefix + name
        if full in in_graph:
            suffix = next_suffix.get(full, 0)
            while candidate in in_graph or candidate in blocked:
                suffix += 1
                candidate = f"{full}_{suffix}"
            next_suffix[full] = suffix
        chosen[name] = candidate
        in_graph.add(candidate)
    return chosen


def _prefixes(names: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for name in names:
        end = name.rfind("/")
        while end > 0 and name[:end] not in found:
            found.add(name[:end])
            end = name.rfind("/", 0, end)
    return found
