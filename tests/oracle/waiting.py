"""The oracle cases that wait for a later stage, by family.  This list only shrinks."""

from __future__ import annotations

from typing import Final

CONTROL_FLOW: Final = frozenset({"cond", "while", "rawcf", "dead", "control", "tensorarray"})
FUNCTIONS: Final = frozenset({"func"})
DEVICES: Final = frozenset({"device"})
WAITING_FAMILIES: Final = CONTROL_FLOW | FUNCTIONS | DEVICES

# Cases of other families that hold a loop or a branch.
WAITING_CASES: Final = frozenset(
    {
        "err_fetch_inside_loop",
        "err_frames_mismatch",
        "model_beam_search",
        "model_kmeans",
        "string_lookup_in_cond",
    }
)
