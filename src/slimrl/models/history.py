"""What training a model's weights have had in slimrl: a small file beside weights that a run has saved."""

import json
from collections.abc import Sequence
from pathlib import Path

from slimrl.io.checksums import check_sums

FILE_NAME = "slimrl.json"
SUPERVISED = "sft"  # a run of `sft`, or the warm-up of `rl`


def read_history(directory: Path) -> tuple[str, ...]:
    """The trainings, in their order, such as ("sft", "rl"); empty for weights that no run of slimrl has saved. Raises
    UserError if the file is damaged."""
    check_sums(directory, [FILE_NAME])
    try:
        trained = json.loads((directory / FILE_NAME).read_text(encoding="utf-8"))["trained"]
    except (OSError, ValueError, LookupError, TypeError):
        return ()
    return tuple(str(one) for one in trained) if isinstance(trained, list) else ()


def write_history(directory: Path, trained: Sequence[str]) -> None:
    """Writes the file. Raises OSError if it cannot be written."""
    (directory / FILE_NAME).write_text(json.dumps({"trained": list(trained)}) + "\n", encoding="utf-8")
