"""Loads the plug-ins of a run: deployments and hooks. A deployment (`slimrl.deployments`) starts the parts of a run in
other processes. A hook (`slimrl.hooks`) is called at the start and the end of a run. The plan and the model card are
hooks."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.launch.tasksets import drop_made
from slimrl.plugins import DEPLOYMENTS, HOOKS, Deployment, call, load, load_all

if TYPE_CHECKING:
    from slimrl.monitor.console import RunConsole  # imports rich, which is slow and not always needed

Note = Callable[[str, str], None]  # logs a line with a style
HERE = ("auto", "one-process")
WHAT = "the deployment"


def run_rl(resolved: Resolved[RLConfig]) -> int:
    """Run the `rl` command in this process, or with the deployment that the settings name. Returns the exit status.
    Raises UserError if the deployment is not installed or the run fails."""
    if resolved.config.deployment.type in HERE:
        status: int = call("slimrl.commands.rl:run_rl", resolved)
        return status
    drop_made()
    return int(call(find(resolved.config.deployment.type).run, resolved))


def find(name: str) -> Deployment:
    """Return the deployment with this name. Raises UserError if it is not installed."""
    found: Deployment = load(DEPLOYMENTS, name, WHAT)
    return found


def part_of(name: str) -> Callable[[Resolved[RLConfig]], int]:
    """Return a function that runs the part `name` of an `rl` run. Raises UserError without the deployment
    `processes`."""
    place = find("processes").parts[name]
    return lambda resolved: int(call(place, resolved))


class Hook(Protocol):
    """A plug-in with code for the start and the end of a run."""

    def begin(self, config: RLConfig, output_dir: Path | None, note: Note) -> None:
        """Prepare for an `rl` run. This is called before the model is loaded, with the devices of the parts already
        chosen in `config`. `output_dir` exists; it is None if another process owns the directory. Raises UserError to
        refuse the run."""

    def end(self, output_dir: Path, step: int, console: "RunConsole") -> None:
        """Finish the work of the hook. This is called when all files of the run, with the last weights, are written."""


def begin_hooks(config: RLConfig, output_dir: Path | None, note: Note) -> None:
    """Call `begin` of every hook. Raises UserError if a hook refuses the run."""
    for hook in _hooks(note):
        hook.begin(config, output_dir, note)


def end_hooks(output_dir: Path, step: int, console: "RunConsole") -> None:
    """Call `end` of every hook."""
    for hook in _hooks(console.note):
        hook.end(output_dir, step, console)


def _hooks(note: Note) -> list[Hook]:
    return load_all(HOOKS, "the hook", lambda text: note(text, "yellow"))
