"""Help for names that do not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """A hint that lists the names most like *name*, or None when nothing is like it."""
    candidates = [other for other in names if abs(len(other) - len(name)) <= 3][:2000]
    found = difflib.get_close_matches(name, candidates, n=3)
    return f"did you mean {', '.join(repr(other) for other in found)}?" if found else None
