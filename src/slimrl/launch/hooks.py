"""The work of plug-ins at the start and at the end of a run (`slimrl.hooks`): the plan, the model card."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from slimrl.config.run import RLConfig
from slimrl.monitor.console import RunConsole
from slimrl.plugins import HOOKS, load_all

Note = Callable[[str, str], None]  # a line, and its style


class Hook(Protocol):
    """The work of a plug-in beside a run."""

    def begin(self, config: RLConfig, output_dir: Path | None, note: Note) -> None:
        """Called for `rl` with its placed settings, before the model is loaded. `output_dir` exists; it is None where
        another process has it. Raises UserError to refuse the run."""

    def end(self, output_dir: Path, step: int, console: RunConsole) -> None:
        """Called when the weights after the last step, and everything else, have been written."""


def begin_hooks(config: RLConfig, output_dir: Path | None, note: Note) -> None:
    """Call `begin` of every hook. Raises UserError if one refuses the run."""
    for hook in _hooks(note):
        hook.begin(config, output_dir, note)


def end_hooks(output_dir: Path, step: int, console: RunConsole) -> None:
    """Call `end` of every hook."""
    for hook in _hooks(console.note):
        hook.end(output_dir, step, console)


def _hooks(note: Note) -> list[Hook]:
    return load_all(HOOKS, "the hook", lambda text: note(text, "yellow"))
