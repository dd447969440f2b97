"""What means something in its own process alone, and so cannot be pickled."""

from __future__ import annotations

from typing import NoReturn


class ProcessBound:
    """Base of resources: pickling one raises TypeError, where a copy would silently be another resource."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} stays in its process")
