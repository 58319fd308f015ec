"""The model card at the end of a run."""

from pathlib import Path

from slimrl.io.invocation import command_prefix
from slimrl.monitor.console import RunConsole
from slimrl.sharing.card import FILE_NAME, write_card
from slimrl.trainer.weights import weights_directory


def note_card(output_dir: Path, step: int, console: RunConsole) -> None:
    """Write the card of a run's last weights, and say where it is and how both are shared."""
    weights = weights_directory(output_dir, step)
    if write_card(output_dir, weights):
        share = f"{command_prefix()}slimrl push {weights} OWNER/NAME"
        console.note(f"model card: {weights / FILE_NAME}; `{share}` uploads both")
    else:
        console.note(f"{weights / FILE_NAME} is not slimrl's, or was edited: left as it is")
