"""Resolves the name of a model to a local directory in Hugging Face format. Loads no weights.

A name refers to the packaged model, a directory, a `.gguf` file, or the id of a model on the Hub. `resolve` downloads
or converts the model if necessary, and checks that all files are complete before any slow work.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import httpx
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from slimrl.errors import UserError
from slimrl.io.checksums import check_sums
from slimrl.io.regular_file import read_json
from slimrl.models.gguf import convert
from slimrl.models.names import PACKAGED, ModelKind, find_packaged_file, kind_of, models_in
from slimrl.models.tensor_file import TensorFile
from slimrl.models.weight_files import weight_files

UNREACHABLE = (httpx.HTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, ConnectionError)
FILES = ("*.json", "*.jinja", "tokenizer.model", "merges.txt", "model*.safetensors")
MAX_JSON_BYTES = 128 * 2**20  # a tokenizer of a large vocabulary has 35 MB
JSON_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")


def resolve(name: str) -> Path:
    """Return the local directory with this model's config, weights and tokenizer.

    Raises UserError if the model does not exist, if a file is missing or truncated, or if the download fails.
    """
    match kind_of(name):
        case ModelKind.PACKAGED:
            return convert(find_packaged_file(name))
        case ModelKind.DIRECTORY:
            return check_directory(Path(os.path.expanduser(name)))
        case ModelKind.GGUF:
            return convert(Path(os.path.expanduser(name)))
        case ModelKind.HUB:
            return check_directory(_download(name, FILES))


def find_config(name: str) -> Path:
    """Return the directory with the `config.json` of a model in a directory or on the Hub. Nothing else is read or
    downloaded. Raises UserError if the file is missing."""
    # Not `hf_hub_download`: without a network, it repeats the request for an uncached file five times.
    is_on_hub = kind_of(name) is ModelKind.HUB
    directory = _download(name, ("config.json",)) if is_on_hub else Path(os.path.expanduser(name))
    if not (directory / "config.json").is_file():
        raise UserError(f"{directory} is not a model directory: it has no config.json.{models_in(directory)}")
    read_json(directory / "config.json", MAX_JSON_BYTES)
    return directory


def loadable_name(name: str, directory: Path) -> str:
    """Return a name that transformers can load: the id of a model on the Hub, or else the `directory` from
    `resolve`."""
    return name if kind_of(name) is ModelKind.HUB else str(directory.resolve())


def check_directory(directory: Path) -> Path:
    """Return the directory if it holds a model.

    Raises UserError if its config is unreadable, its weights are incomplete, or it has no tokenizer. Also raises if
    slimrl wrote the files and they have changed since.
    """
    found = ", ".join(sorted(path.name for path in directory.iterdir())[:12]) or "nothing"
    for name in JSON_FILES:  # an interrupted copy is noticed here first
        if (directory / name).exists():
            read_json(directory / name, MAX_JSON_BYTES)
    weights = weight_files(directory)
    if not (directory / "config.json").is_file():
        raise UserError(
            f"{directory} is not a model directory: it has no config.json (it holds {found}).{models_in(directory)}"
        )
    if not weights:
        raise UserError(
            f"{directory} has a config.json but no weights: it needs model.safetensors, or several with their index, "
            f"and holds {found}.{models_in(directory)} Convert pickled weights by `save_pretrained` of transformers."
        )
    for path in weights:
        if not path.is_file() or path.stat().st_size == 0:
            raise UserError(f"The weights are incomplete: {path} is missing or empty. Copy or download it again.")
        TensorFile(path)  # raises if it is truncated
    if not any((directory / tokenizer).is_file() for tokenizer in TOKENIZERS):
        raise UserError(
            f"{directory} has no tokenizer: it needs one of {', '.join(TOKENIZERS)}, and holds {found}. Copy the files "
            "tokenizer.json, tokenizer_config.json and chat_template.jinja of the model that it was made from."
        )
    check_sums(directory)
    return directory


def _download(name: str, patterns: Sequence[str]) -> Path:
    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except (*UNREACHABLE, HFValidationError) as error:
        raise UserError(_advice(name, error)) from error


def _advice(name: str, error: Exception) -> str:
    """Return the advice for a failed download."""
    packaged = f"The packaged model does without the Hub: --model.name {next(iter(PACKAGED))}."
    match error:
        case GatedRepoError():
            page = f"https://huggingface.co/{name}"
            return f"{name} is gated: accept its terms at {page}, then run `hf auth login` or set HF_TOKEN."
        case RepositoryNotFoundError():
            return (
                f"There is no directory {name} here and no model {name} on the Hugging Face Hub (or it is private: run "
                f"`hf auth login` or set HF_TOKEN). Mind upper and lower case. {packaged}"
            )
        case HFValidationError():
            return f"`{name}` cannot be the id of a model on the Hugging Face Hub: {error}. {packaged}"
    first_line, _, _ = str(error).strip().partition("\n")
    return (
        f"There is no directory {name} here, {name} is not in the Hugging Face cache, and the Hub cannot be reached "
        f"({first_line}). Check the network and HF_HUB_OFFLINE, or name a directory. {packaged}"
    )
