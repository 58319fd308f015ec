"""The chat format of a model whose tokenizer is on this machine; a plan downloads no tokenizer."""

import os
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from transformers import AutoTokenizer

from slimrl.errors import UserError
from slimrl.io.cache import cache_root
from slimrl.models.chat.template import ChatFormat
from slimrl.models.names import PACKAGED, ModelKind, kind_of

TOKENIZER = "tokenizer.json"


def local_chat(name: str) -> ChatFormat | None:
    """The chat format of this model; None if its tokenizer is not here, or is none to converse with."""
    directory = _directory(name)
    if directory is None or not (directory / TOKENIZER).is_file():
        return None
    try:
        return ChatFormat(AutoTokenizer.from_pretrained(directory, trust_remote_code=False))
    except (UserError, ValueError, OSError, KeyError):
        return None  # what is wrong with it is said when the model is loaded


def _directory(name: str) -> Path | None:
    match kind_of(name):
        case ModelKind.DIRECTORY:
            return Path(os.path.expanduser(name))
        case ModelKind.HUB:
            found = try_to_load_from_cache(name, TOKENIZER)
            return Path(found).parent if isinstance(found, str) else None
    # The newest directory that a file of this name was converted to (`models/gguf.py`).
    stem = Path(PACKAGED[name].member if name in PACKAGED else name).stem
    converted = (cache_root() / "models").glob(f"{stem}-*")
    return max(converted, key=lambda path: path.stat().st_mtime, default=None)
