"""The `rl` command for parts that are processes: starts and watches them, without loading a model itself."""

from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.io.last_resort import end_by_itself
from slimrl.launch.extensions import begin_hooks
from slimrl.launch.open_dir import with_pinned_model
from slimrl.launch.placement import place
from slimrl.launch.supervised import without_needless_warm_up
from slimrl.monitor.console import RunConsole
from slimrl_cluster.launch.supervision import supervise


def run_supervisor(resolved: Resolved[RLConfig]) -> int:
    """Run the parts of an `rl` run as processes, until all have ended."""
    end_by_itself()
    note, resolved = RunConsole().note, with_pinned_model(resolved)
    config = place(resolved.config, note)
    # The trainer prints the note about a needless warm-up, and opens the directory.
    begin_hooks(without_needless_warm_up(config, lambda text: None), None, note)
    return supervise(config, resolved.argv, note)
