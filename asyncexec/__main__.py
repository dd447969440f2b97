"""``python -m asyncexec`` is the command ``asyncexec``."""

from __future__ import annotations

from asyncexec.cli.main import main

if __name__ == "__main__":
    main()
