"""The `rl` command where its parts are processes: starts and watches them, without loading a model itself."""

from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.launch.placement import place
from slimrl.launch.supervision import supervise
from slimrl.monitor.console import RunConsole


def run_supervisor(resolved: Resolved[RLConfig]) -> int:
    """Run the parts of an `rl` run as processes, until all have ended."""
    note = RunConsole().note
    return supervise(place(resolved.config, note), resolved.argv, note)
