"""Exits with the command that works where this Python has no slimrl. Each script imports it first."""

import sys
from importlib.util import find_spec

if find_spec("slimrl") is None or find_spec("dotenv") is None:
    sys.exit(
        f"slimrl is not installed in this Python, {sys.executable}. In a checkout of slimrl: "
        f"uv run python {' '.join(sys.argv)}"
    )
