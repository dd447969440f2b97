"""What a pass has changed, as ``RunMetadata.passes`` shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from asyncexec.framework.step_stats import PassStats

_MOST_NAMES: Final = 20


@dataclass(slots=True)
class Changes:
    """The names of nodes that were added, removed and changed; dicts, for they keep the order."""

    added: dict[str, None] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    changed: dict[str, None] = field(default_factory=dict)

    @property
    def are_none(self) -> bool:
        return not (self.added or self.removed or self.changed)

    def stats(self, name: str, grouping: str, before: int, after: int, device: str = "") -> PassStats:
        """These changes, as made by the pass *name*."""
        added = [each for each in self.added if each not in self.removed]
        removed = [each for each in self.removed if each not in self.added]
        changed = [each for each in self.changed if each not in self.removed and each not in self.added]
        found = pass_stats(name, grouping, before, after, device)
        found.num_added, found.num_removed, found.num_changed = len(added), len(removed), len(changed)
        found.examples = [
            *(f"+{each}" for each in added[:_MOST_NAMES]),
            *(f"-{each}" for each in removed[:_MOST_NAMES]),
            *(f"~{each}" for each in changed[:_MOST_NAMES]),
        ]
        return found


def pass_stats(name: str, grouping: str, before: int, after: int, device: str = "") -> PassStats:
    """Those of a pass that has changed nothing.

    They are not validated, for pydantic would build its validator first; nor does it get to look for the list.
    """
    return PassStats.model_construct(
        name=name, grouping=grouping, device=device, num_nodes_before=before, num_nodes_after=after, examples=[]
    )
