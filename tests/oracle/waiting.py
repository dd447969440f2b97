"""The oracle cases that wait for a later stage, by family.  This list only shrinks."""

from __future__ import annotations

from typing import Final

DEVICES: Final = frozenset({"device"})
WAITING_FAMILIES: Final = DEVICES

# Refused when the graph is loaded, where TensorFlow waits for the first run; the status is the same.
REFUSED_AT_LOAD: Final = frozenset({"err_frames_mismatch"})
