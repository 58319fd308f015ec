"""Probes the container engine. The sandbox's server can run in a container, or directly on this machine."""

from slimrl.errors import UserError
from slimrl.monitor.findings import Finding, Level
from slimrl_search.services.container import find_compose


def probe() -> list[Finding]:
    """Return a finding on the container engine. A missing engine is only a note, because bubblewrap can replace it."""
    try:
        engine = find_compose()[0]
    except UserError as error:
        return [Finding("container", Level.NOTE, str(error))]
    return [Finding("container", Level.OK, f"`scripts/run_environment.py --container` would use {engine}")]
