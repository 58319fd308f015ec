"""Two saved evaluations, task by task, on the terminal."""

from pathlib import Path

from slimrl.eval.compare import compare_saved
from slimrl.eval.report import pairs_table
from slimrl.monitor.console import RunConsole
from slimrl.monitor.tables import for_terminal


def show_comparison(first: Path, second: Path) -> None:
    """Show the differences of the first evaluation from the second, for each mode of decoding."""
    console = RunConsole()
    for mode, pairs in compare_saved(first, second):
        console.note(mode, style="bold")
        console.show(for_terminal(pairs_table(str(first), str(second), pairs), console.is_live))
