"""Finds the weights in a model directory. Needs neither PyTorch nor transformers: slimrl's vLLM plug-in uses it."""

from pathlib import Path

from slimrl.errors import UserError
from slimrl.io.regular_file import read_json

VLLM_ENGINE = "slimrl"  # the weight transfer engine of the plug-in for vLLM, which reads such directories
# In the order in which transformers looks for them: it takes the first, whatever else lies there.
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
MAX_INDEX_BYTES = 16 * 2**20


def weight_files(directory: Path) -> list[Path]:
    """The weight files that transformers loads: a whole one, or all that an index lists; none if there is neither.

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
    if elsewhere := sorted(name for name in names if Path(name).name != name or "\0" in name):
        raise UserError(f"{found} names the file {elsewhere[0]!r}, which is not in its directory. Copy it again.")
    return [directory / name for name in sorted(names)]
