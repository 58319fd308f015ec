"""The module finds the weights of a judge by its name: a local path, the packaged model, or files of the Hub.

huggingface_hub downloads them: it caches files and resumes interrupted downloads. Without a network the cache is used.
"""

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import httpx
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import RepositoryNotFoundError

from slimrl.errors import UserError, first_line, nearest
from slimrl.io.cache import say
from slimrl.models.names import PACKAGED
from slimrl.models.packaged import find_packaged_file
from slimrl_search.services.judge_settings import KNOWN

# Errors of the Hub's client when the network or the Hub fails; its own errors are subclasses of these.
FAILURES = (httpx.HTTPError, OSError)
QUANTISATION = "Q4_K_M"
REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*")
PART = re.compile(r"-0*(\d+)-of-0*(\d+)\.gguf$", re.IGNORECASE)
SMALL_FILES = (".json", ".jinja", ".txt", ".model", ".tiktoken")


def find_gguf(name: str) -> Path:
    """Return the weights of a judge for llama.cpp: a `.gguf` file, the first of several parts.

    `name` is a `.gguf` file, the packaged model, a key of `judge_settings.KNOWN`, or `owner/repository` on the Hub.
    There a suffix `:Q8_0` or `/file.gguf` chooses among its files. Raises UserError if the model does not exist or
    cannot be fetched.
    """
    path = Path(name).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return path.absolute()
    if name in PACKAGED:
        return find_packaged_file(name)
    repository, wanted = _parse_name(KNOWN[name][1] if name in KNOWN else name)
    _check_repository(repository, name, "`.gguf` file", [*KNOWN, *PACKAGED], ", or owner/repository:Q8_0")
    return fetch(repository, lambda files: choose_files(files, wanted), f".gguf file {wanted}")[0]


def find_model(name: str) -> Path:
    """Return the directory of a judge's model for vLLM. `name` is a directory, a key of `judge_settings.KNOWN`, or
    `owner/model` on the Hub. Raises UserError as `find_gguf` does."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    repository = KNOWN[name][0] if name in KNOWN else name
    _check_repository(repository, name, "directory", list(KNOWN), "")
    return fetch(repository, choose_model, "model in safetensors")[0].parent


def fetch(repository: str, choose: Callable[[list[str]], list[str]], what: str) -> list[Path]:
    """Return the files of a repository that `choose` picks from their names, from the Hub or from its cache.

    Messages describe these files by `what`. Raises UserError if the files do not exist or cannot be fetched.
    """
    reason, home = "", Path()
    try:
        files = [one.rfilename for one in HfApi().model_info(repository).siblings or ()]
    except RepositoryNotFoundError as error:
        raise UserError(
            f"there is no model {repository} on the Hugging Face Hub, or it is private: then run `hf auth login`."
        ) from error
    except FAILURES as error:
        reason, home = first_line(error), _find_cached(repository)
        files = [path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()] if home.name else []
    names = choose(files)
    if reason and not names:
        raise UserError(
            f"the Hugging Face Hub cannot be reached ({reason}), and {repository}, {what}, is not complete in its "
            "cache. Check the network and HF_HUB_OFFLINE, or set JUDGE_MODEL to local weights."
        )
    if not names:
        weights = [file for file in files if PurePosixPath(file).suffix in (".gguf", ".safetensors")]
        raise UserError(f"{repository} has no {what}. It has: {', '.join(sorted(weights)) or 'no weights'}.")
    if reason:
        say(f"weights: {home / names[0]}, from the cache, as the Hugging Face Hub cannot be reached ({reason})")
        return [home / name for name in names]
    try:
        home = Path(snapshot_download(repository, allow_patterns=names))
    except FAILURES as error:
        raise UserError(
            f"{repository} could not be fetched: {first_line(error)}. Run it again: the download resumes."
        ) from error
    say(f"weights: {home / names[0]}")
    return [home / name for name in names]


def choose_files(files: list[str], wanted: str) -> list[str]:
    """Return the files with the wanted file name or quantisation, all parts in order; empty if a part is missing.

    >>> choose_files(["m-Q8_0.gguf", "m-q4_k_m-00001-of-00002.gguf", "m-q4_k_m-00002-of-00002.gguf"], "Q4_K_M")
    ['m-q4_k_m-00001-of-00002.gguf', 'm-q4_k_m-00002-of-00002.gguf']
    """
    # `mmproj` files are the image encoders of multimodal models, not weights of a language model.
    weights = sorted(file for file in files if file.endswith(".gguf") and "mmproj" not in file)
    stem_of = {file: PART.sub("", file).removesuffix(".gguf") for file in weights}
    # "Q4_K_M" must be the whole last word of the name, because otherwise `Q4_K` would match `Q4_K_M` as well.
    ending = re.compile(rf"[-.]{re.escape(wanted)}$", re.IGNORECASE)
    stem = stem_of.get(wanted) or next((stem for stem in stem_of.values() if ending.search(stem)), "")
    same = [file for file in weights if stem_of[file] == stem]
    whole = [file for file in same if not PART.search(file)]
    if whole and not PART.search(wanted):  # some repositories have a model both whole and in parts
        return whole
    parts = [(file, int(found[2])) for file in same if (found := PART.search(file))]
    return [file for file, num in parts if num == len(parts)]


def choose_model(files: list[str]) -> list[str]:
    """Return the files of a model that vLLM needs: small files, and the safetensors or else the `.bin` weights."""
    by_kind = [[file for file in files if file.endswith(kind)] for kind in (".safetensors", ".bin")]
    weights = by_kind[0] or by_kind[1]
    small = [file for file in files if file.endswith(SMALL_FILES) and "/" not in file]
    return [*small, *weights] if small and weights else []


def _check_repository(repository: str, name: str, kind: str, known: list[str], more: str) -> None:
    if not REPOSITORY.fullmatch(repository):
        raise UserError(
            f"JUDGE_MODEL is {name!r}: no {kind} here, and no model that is known.{nearest(name, known)} Or name one "
            f"of the Hub's, as owner/repository{more}."
        )


def _parse_name(name: str) -> tuple[str, str]:
    """Return the repository, and the wanted file name or quantisation."""
    if name.endswith(".gguf") and name.count("/") >= 2:
        owner, repository, file = name.split("/", 2)
        return f"{owner}/{repository}", file
    repository, _, quantisation = name.partition(":")
    return repository, quantisation or QUANTISATION


def _find_cached(repository: str) -> Path:
    """Return the directory with the cached files of a repository, or an empty path."""
    try:
        return Path(snapshot_download(repository, allow_patterns=[], local_files_only=True))
    except FAILURES:
        return Path()
