"""The container engine, in which the sandbox's server may run instead of on this machine."""

from slimrl.errors import UserError
from slimrl.monitor.findings import Finding, Level
from slimrl_search.services.container import find_compose


def probe() -> list[Finding]:
    """Return a finding on the container engine; where bubblewrap works, no engine is needed."""
    try:
        engine = find_compose()[0]
    except UserError as error:
        return [Finding("container", Level.NOTE, str(error))]
    return [Finding("container", Level.OK, f"`scripts/run_environment.py --container` would use {engine}")]
