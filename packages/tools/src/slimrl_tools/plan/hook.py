"""Shows the plan of a run in two lines as it starts (`slimrl.hooks`)."""

from collections.abc import Callable
from pathlib import Path

from slimrl.config.run import RLConfig
from slimrl.monitor.console import RunConsole
from slimrl_tools.launch.planning import foretell, keep_plan


class PlanHook:
    """Prints the plan, refuses a run that cannot fit, and keeps the plan for the closing table."""

    def begin(self, config: RLConfig, output_dir: Path | None, note: Callable[[str, str], None]) -> None:
        plan = foretell(config, note)
        if output_dir:
            keep_plan(plan, output_dir)

    def end(self, output_dir: Path, step: int, console: RunConsole) -> None:
        """Do nothing: the closing table has read the plan already."""


HOOK = PlanHook()
