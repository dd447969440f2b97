"""All architectures: importing their modules enters them."""

from __future__ import annotations

from tests.oracle.architectures import classic, language, tabular, vision
from tests.oracle.architectures.forms import ARCHITECTURES

__all__ = ["ARCHITECTURES", "classic", "language", "tabular", "vision"]
