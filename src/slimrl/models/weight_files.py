"""Finds the weights in a model directory. Imports neither PyTorch nor transformers, for slimrl's vLLM plug-in."""

from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.regular_file import read_json

VLLM_ENGINE = "slimrl"  # name of the vLLM plug-in's weight transfer engine, which reads model directories
# In the order in which transformers searches; it loads the first file that exists.
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
MAX_INDEX_BYTES = 16 * 2**20


def weight_files(directory: Path) -> list[Path]:
    """Return the weight files that transformers loads: a single file, or all files of an index; empty if there is
    neither.

    Raises UserError if the index cannot be read.
    """
    found = next((directory / name for name in WEIGHTS if (directory / name).is_file()), None)
    if found is None or found.suffix != ".json":
        return [] if found is None else [found]
    match read_json(found, MAX_INDEX_BYTES):
        case {"weight_map": dict(files)} if all(isinstance(name, str) for name in files.values()):
            names = set(files.values())
        case _:
            raise UserError(f"{found} is no index of weights: it has no weight_map. Copy or download it again.")
    return [directory / name for name in sorted(names)]
