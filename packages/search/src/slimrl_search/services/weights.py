"""The module finds the weights of a judge by its name: a local path, the packaged model, or files of the Hub.

huggingface_hub downloads them: it caches files and resumes interrupted downloads. Without a network the cache is used.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import httpx
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import RepositoryNotFoundError

from slimrl.errors import UserError, first_line, nearest
from slimrl.io.cache import say
from slimrl.models.names import PACKAGED
from slimrl.models.packaged import find_packaged_file

# Names in Ollama's spelling, with the model on the Hub for vLLM; llama.cpp's weights are in its `-GGUF` repository.
KNOWN = {
    "qwen2.5:3b": "Qwen/Qwen2.5-3B-Instruct",
    "qwen2.5:7b": "Qwen/Qwen2.5-7B-Instruct",
    "qwen3-4b": "Qwen/Qwen3-4B",
    "qwen3-8b": "Qwen/Qwen3-8B",
}
# Errors of the Hub's client when the network or the Hub fails; its own errors are subclasses of these.
FAILURES = (httpx.HTTPError, OSError)
QUANTISATION = "Q4_K_M"
# The owner and the repository, and then a quantisation or a file.
NAME = re.compile(r"(\w[\w.-]*/\w[\w.-]*?)(?::(\w+)|/([\w./-]+\.gguf))?")
PART = re.compile(r"-\d+-of-(\d+)(?=\.gguf$)")


def find_gguf(name: str) -> Path:
    """Return the weights of a judge for llama.cpp: a `.gguf` file, the first of several parts.

    `name` is a `.gguf` file, the packaged model, a key of `KNOWN`, or `owner/repository` on the Hub. There a suffix
    `:Q8_0` or `/file.gguf` chooses among its files. Raises UserError if the model does not exist or cannot be fetched.
    """
    path = Path(name).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return path.absolute()
    if name in PACKAGED:
        return find_packaged_file(name)
    found = NAME.fullmatch(f"{KNOWN[name]}-GGUF" if name in KNOWN else name)
    if found is None:
        raise unknown(name, "`.gguf` file", [*KNOWN, *PACKAGED], ", or owner/repository:Q8_0")
    return fetch(found[1], found[2] or found[3] or QUANTISATION)


def find_model(name: str) -> str:
    """Return a judge's model for vLLM, which fetches it: a directory, or `owner/model` on the Hub for that name or for
    a key of `KNOWN`. Raises UserError for any other name."""
    path = Path(name).expanduser()
    if path.is_dir():
        return str(path)
    found = NAME.fullmatch(KNOWN.get(name, name))
    if found is None or found[1] != found[0]:
        raise unknown(name, "directory", list(KNOWN), "")
    return found[0]


def unknown(name: str, kind: str, known: Sequence[str], more: str) -> UserError:
    """Return an error for a name that is neither a file or directory nor a name on the Hub."""
    return UserError(
        f"JUDGE_MODEL is {name!r}: no {kind} here, and no model that is known.{nearest(name, known)} Or name one of "
        f"the Hub's, as owner/repository{more}."
    )


def fetch(repository: str, wanted: str) -> Path:
    """Return the first `.gguf` file of a repository with the wanted name or quantisation, from the Hub or from its
    cache. Raises UserError if it does not exist or cannot be fetched."""
    try:
        files = HfApi().list_repo_files(repository)
        if not (names := choose_files(files, wanted)):
            weights = ", ".join(sorted(file for file in files if file.endswith((".gguf", ".safetensors"))))
            raise UserError(f"{repository} has no .gguf file {wanted}. It has: {weights or 'no weights'}.")
        home = Path(snapshot_download(repository, allow_patterns=names))
    except RepositoryNotFoundError as error:
        raise UserError(
            f"there is no model {repository} on the Hugging Face Hub, or it is private: then run `hf auth login`."
        ) from error
    except FAILURES as error:
        home = _find_cached(repository)
        names = choose_files([path.relative_to(home).as_posix() for path in home.rglob("*.gguf")], wanted)
        if not names:
            raise UserError(
                f"{repository} could not be fetched ({first_line(error)}), and its .gguf file {wanted} is not complete "
                "in the cache. Run it again: the download resumes. Check the network and HF_HUB_OFFLINE, or set "
                "JUDGE_MODEL to local weights."
            ) from error
        say(f"the Hugging Face Hub cannot be reached ({first_line(error)}), so the cache is used")
    say(f"weights: {home / names[0]}")
    return home / names[0]


def choose_files(files: Sequence[str], wanted: str) -> list[str]:
    """Return the files with the wanted file name or quantisation, all parts in order; empty if a part is missing.

    >>> choose_files(["m-Q8_0.gguf", "m-q4_k_m-00001-of-00002.gguf", "m-q4_k_m-00002-of-00002.gguf"], "Q4_K_M")
    ['m-q4_k_m-00001-of-00002.gguf', 'm-q4_k_m-00002-of-00002.gguf']
    """
    # "Q4_K_M" must be the whole last word of the name, because otherwise `Q4_K` would match `Q4_K_M` as well.
    stem = PART.sub("", wanted).removesuffix(".gguf")
    ending = re.compile(rf"(?:.*[-./])?{re.escape(stem)}\.gguf", re.IGNORECASE)
    # `mmproj` files are the image encoders of multimodal models, not weights of a language model.
    same = sorted(file for file in files if ending.fullmatch(PART.sub("", file)) and "mmproj" not in file)
    whole = [file for file in same if not PART.search(file)]
    if whole and not PART.search(wanted):  # some repositories have a model both whole and in parts
        return whole[:1]
    return [file for file in same if (found := PART.search(file)) and int(found[1]) == len(same) - len(whole)]


def _find_cached(repository: str) -> Path:
    """Return the directory with the cached files of a repository, or a path without files."""
    try:
        return Path(snapshot_download(repository, allow_patterns=[], local_files_only=True))
    except FAILURES:
        return Path("no cache")
