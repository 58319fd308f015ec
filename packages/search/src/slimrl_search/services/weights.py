"""Finds the weights of a judge by its name: a local path, the packaged model, or files on the Hub.

huggingface_hub downloads and caches the files, and resumes interrupted downloads. Without a network the cache is used.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import httpx
from huggingface_hub import snapshot_download
from huggingface_hub.errors import RepositoryNotFoundError

from slimrl.errors import UserError, first_line, nearest
from slimrl.io.cache import say
from slimrl.models.names import PACKAGED, find_packaged_file

# Names in Ollama's spelling, with the model on the Hub for vLLM; llama.cpp's weights are in its `-GGUF` repository.
KNOWN = {
    "qwen2.5:3b": "Qwen/Qwen2.5-3B-Instruct",
    "qwen2.5:7b": "Qwen/Qwen2.5-7B-Instruct",
    "qwen3-4b": "Qwen/Qwen3-4B",
    "qwen3-8b": "Qwen/Qwen3-8B",
}
QUANTISATION = "Q4_K_M"
NAME = re.compile(r"(\w[\w.-]*/\w[\w.-]*?)(?::(\w+))?")  # owner and repository, optionally with a quantisation
PART = re.compile(r"-\d+-of-(\d+)(?=\.gguf$)")


def find_gguf(name: str) -> Path:
    """Return the weights of a judge for llama.cpp: the path of a `.gguf` file. If the model has several parts, return
    the first part.

    `name` is a `.gguf` file, the packaged model, a key of `KNOWN`, or `owner/repository` on the Hub. A suffix of the
    repository such as `:Q8_0` chooses the quantisation. Raises UserError if the model does not exist or cannot be
    fetched.
    """
    path = Path(name).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return path.absolute()
    if name in PACKAGED:
        return find_packaged_file(name)
    found = NAME.fullmatch(f"{KNOWN[name]}-GGUF" if name in KNOWN else name)
    if found is None:
        raise unknown(name, "`.gguf` file", [*KNOWN, *PACKAGED], ", or owner/repository:Q8_0")
    return fetch(found[1], found[2] or QUANTISATION)


def find_model(name: str) -> str:
    """Return a judge's model for vLLM: a directory, or `owner/model` on the Hub, which vLLM downloads. `name` may also
    be a key of `KNOWN`. Raises UserError for any other name."""
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path)
    found = NAME.fullmatch(KNOWN.get(name, name))
    if found is None or found[1] != found[0]:
        raise unknown(name, "directory", list(KNOWN), "")
    return found[0]


def unknown(name: str, kind: str, known: Sequence[str], more: str) -> UserError:
    """Return the error for an unknown model `name`. `kind` is the kind of path that was looked for, and `more` another
    form of a name on the Hub. The error suggests the nearest of the `known` names."""
    return UserError(
        f"JUDGE_MODEL is {name!r}: no {kind} here, and no model that is known.{nearest(name, known)} Or name one of "
        f"the Hub's, as owner/repository{more}."
    )


def fetch(repository: str, quantisation: str) -> Path:
    """Return the first `.gguf` file of a repository with a quantisation, from the Hub or from the Hub's cache. Raises
    UserError if the file does not exist or cannot be fetched."""
    # The Hub's patterns are case-sensitive, and repositories write `Q4_K_M` in upper or lower case.
    stem = "".join(f"[{c.lower()}{c.upper()}]" for c in quantisation)
    patterns = [f"*[-./]{stem}{end}.gguf" for end in ("", "-*-of-*")]
    images = "*mmproj*"  # the image encoders of multimodal models
    try:
        home = Path(snapshot_download(repository, allow_patterns=patterns, ignore_patterns=images))
    except RepositoryNotFoundError as error:
        raise UserError(
            f"there is no model {repository} on the Hugging Face Hub, or it is private: then run `hf auth login`."
        ) from error
    except (httpx.HTTPError, OSError) as error:  # the Hub's own errors are subclasses of these
        raise UserError(
            f"{repository} could not be fetched: {first_line(error)} Run it again: the download resumes. Check the "
            "network and HF_HUB_OFFLINE, or set JUDGE_MODEL to local weights."
        ) from error
    names = sorted(path.relative_to(home).as_posix() for path in home.rglob("*.gguf"))
    names = [
        name for name in names if any(fnmatchcase(name, one) for one in patterns) and not fnmatchcase(name, images)
    ]
    whole = [name for name in names if not PART.search(name)] or names  # some repositories have the parts too
    part = PART.search(whole[0]) if whole else None
    if not whole or (part and int(part[1]) != len(whole)):
        raise UserError(
            f"{repository} has no whole .gguf file {quantisation}: https://huggingface.co/{repository}/tree/main lists "
            "its files, and `JUDGE_MODEL=owner/repository:Q8_0` chooses one. Without a network it must be in the cache."
        )
    say(f"weights: {home / whole[0]}")
    return home / whole[0]
