"""Exits with the command that works where this Python has no slimrl. Each script imports it first.

The checkout is importable from then on: the scripts that test a server take their checks from the tests.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

# What the scripts import: in a checkout the plug-ins are there.
NEEDED = ("slimrl", "dotenv", "slimrl_envs", "slimrl_sandbox", "slimrl_search", "slimrl_tools")

if missing := [name for name in NEEDED if find_spec(name) is None]:
    name = missing[0].replace("_", "-") if missing[0].startswith("slimrl_") else "slimrl"
    sys.exit(
        f"{name} is not installed in this Python, {sys.executable}. In a checkout of slimrl: "
        f"uv run python {' '.join(sys.argv)}"
    )
sys.path.append(str(Path(__file__).parents[1]))
