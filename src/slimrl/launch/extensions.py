"""Calls the hooks of a run (`slimrl.hooks`), at its start and its end. The plan and the model card are hooks."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from slimrl.config.run import RLConfig
from slimrl.monitor.console import RunConsole
from slimrl.plugins import HOOKS, load_all

Note = Callable[[str, str], None]  # logs a line with a style


class Hook(Protocol):
    """A plug-in with code for the start and the end of a run."""

    def begin(self, config: RLConfig, output_dir: Path | None, note: Note) -> None:
        """Prepare for an `rl` run. This is called before the model is loaded, with the devices of the parts already
        chosen in `config`. `output_dir` exists; it is None if another process owns the directory. Raises UserError to
        refuse the run."""

    def end(self, output_dir: Path, step: int, console: RunConsole) -> None:
        """Finish the work of the hook. This is called when all files of the run, with the last weights, are written."""


def begin_hooks(config: RLConfig, output_dir: Path | None, note: Note) -> None:
    """Call `begin` of every hook. Raises UserError if a hook refuses the run."""
    for hook in _hooks(note):
        hook.begin(config, output_dir, note)


def end_hooks(output_dir: Path, step: int, console: RunConsole) -> None:
    """Call `end` of every hook."""
    for hook in _hooks(console.note):
        hook.end(output_dir, step, console)


def _hooks(note: Note) -> list[Hook]:
    return load_all(HOOKS, "the hook", lambda text: note(text, "yellow"))
