"""Writes the model card at the end of a run (`slimrl.hooks`)."""

from collections.abc import Callable
from pathlib import Path

from slimrl.config.run import RLConfig
from slimrl.io.invocation import command_prefix
from slimrl.io.run_dir import RunDir
from slimrl.monitor.console import RunConsole
from slimrl_tools.sharing.card import FILE_NAME, write_card


class CardHook:
    """A hook that writes the model card of a run's last weights, and prints the card's path and the command for the
    upload."""

    def begin(self, config: RLConfig, output_dir: Path | None, note: Callable[[str, str], None]) -> None:
        """Do nothing: the card is written at the end."""

    def end(self, output_dir: Path, step: int, console: RunConsole) -> None:
        weights = RunDir(output_dir).weights_of(step)
        if write_card(output_dir, weights):
            share = f"{command_prefix()}slimrl push {weights} OWNER/NAME"
            console.note(f"model card: {weights / FILE_NAME}; `{share}` uploads both")


HOOK = CardHook()
