"""Probes the container engine. `scripts/run_environment.py` can run the sandbox's server in a container."""

from slimrl.errors import UserError
from slimrl.monitor.findings import Finding, Level
from slimrl_search.services.container import find_compose


def probe() -> list[Finding]:
    """Return a finding on the container engine. A missing engine is only a note, because the sandbox can also run on
    this machine with bubblewrap."""
    try:
        engine = find_compose()[0]
    except UserError as error:
        return [Finding("container", Level.NOTE, str(error))]
    return [Finding("container", Level.OK, f"`scripts/run_environment.py --container` would use {engine}")]
