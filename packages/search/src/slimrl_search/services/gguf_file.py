"""The module finds the `.gguf` file that a judge's name stands for: a local one, the packaged model, or one of the Hub.

Downloads go through huggingface_hub, which caches them, resumes an interrupted one, and compares a file's size with the
one that the Hub states. Without a network the cached files are used.
"""

import re
from collections.abc import Callable
from pathlib import Path

from huggingface_hub import hf_hub_download

from slimrl.errors import UserError, first_line, nearest
from slimrl.io.cache import say
from slimrl.models.names import PACKAGED
from slimrl.models.packaged import find_packaged_file
from slimrl_search.services.hub import FAILURES, Unreachable, cached_files, check_room, hub_model
from slimrl_search.services.judge_settings import KNOWN

QUANTISATION = "Q4_K_M"
REPOSITORY = re.compile(r"\w[\w.-]*/\w[\w.-]*")
PART = re.compile(r"-0*(\d+)-of-0*(\d+)\.gguf$", re.IGNORECASE)


def find_weights(name: str) -> Callable[[], Path]:
    """A function that gets the weights which a name stands for, and returns their path: that of the first of several
    parts.

    `name` is a `.gguf` file, the packaged model, a key of `judge_settings.KNOWN`, or `owner/repository` on the Hub,
    where a suffix `:Q8_0` or `/file.gguf` chooses among its files.

    Raises:
        UserError: if the name is unknown, or what is missing cannot be fetched: there is no network, or no room.
    """
    path = Path(name).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return path.absolute
    if name in PACKAGED:
        return lambda: find_packaged_file(name)
    repository, wanted = _parse_name(KNOWN[name][1] if name in KNOWN else name)
    if not REPOSITORY.fullmatch(repository):
        known = nearest(name, [*KNOWN, *PACKAGED])
        raise UserError(
            f"JUDGE_MODEL is {name!r}: no `.gguf` file here, and no model that is known.{known} Or name one of the "
            "Hub's, as owner/repository or owner/repository:Q8_0."
        )
    return _find_on_hub(repository, wanted)


def choose_files(files: list[str], wanted: str) -> list[str]:
    """The files with the wanted file name or quantisation, all parts in order; an empty list if none matches.

    >>> choose_files(["m-Q8_0.gguf", "m-q4_k_m-00001-of-00002.gguf", "m-q4_k_m-00002-of-00002.gguf"], "Q4_K_M")
    ['m-q4_k_m-00001-of-00002.gguf', 'm-q4_k_m-00002-of-00002.gguf']
    """
    # `mmproj` files are the image encoders of multimodal models, no language model's weights.
    weights = sorted(file for file in files if file.endswith(".gguf") and "mmproj" not in file)
    if wanted in weights:
        stem = PART.sub("", wanted)
    else:
        # "Q4_K_M" must be the whole last word of the name, or `Q4_K` would match `Q4_K_M` as well.
        ending = re.compile(rf"[-.]{re.escape(wanted)}$", re.IGNORECASE)
        stems = [PART.sub("", file).removesuffix(".gguf") for file in weights]
        stem = next((stem for stem in stems if ending.search(stem)), "")
        weights = [file for file, its in zip(weights, stems, strict=True) if stem and its == stem]
        # Some repositories have a model both whole and in parts.
        return [file for file in weights if not PART.search(file)] or weights
    return [file for file in weights if file == wanted or (PART.search(file) and PART.sub("", file) == stem)]


def _parse_name(name: str) -> tuple[str, str]:
    """The repository, and the file name or quantisation that is wanted from it."""
    if name.endswith(".gguf") and name.count("/") >= 2:
        owner, repository, file = name.split("/", 2)
        return f"{owner}/{repository}", file
    repository, _, quantisation = name.partition(":")
    return repository, quantisation or QUANTISATION


def _find_on_hub(repository: str, wanted: str) -> Callable[[], Path]:
    try:
        info = hub_model(repository)
    except Unreachable as error:
        path = _find_in_cache(repository, wanted, str(error))
        return lambda: path
    files = [one.rfilename for one in info.siblings or ()]
    names = choose_files(files, wanted)
    if not names:
        there = ", ".join(sorted(file for file in files if file.endswith(".gguf"))) or "none"
        raise UserError(f"{repository} has no .gguf file {wanted}. It has: {there}. Choose one by {repository}/FILE.")
    missing = check_room(info, names)

    def fetch() -> Path:
        if missing:
            say(f"weights: {repository}, {', '.join(names)}: fetching {missing / 1e9:.1f} GB, once")
        paths = [_download(repository, name, str(info.sha)) for name in names]
        say(f"weights: {paths[0]}")
        return paths[0]

    return fetch


def _download(repository: str, name: str, revision: str) -> Path:
    try:
        return Path(hf_hub_download(repository, name, revision=revision))
    except FAILURES as error:
        raise UserError(
            f"{name} of {repository} could not be fetched: {first_line(error)}. Run it again: it goes on where it was."
        ) from error


def _find_in_cache(repository: str, wanted: str, reason: str) -> Path:
    """The path of weights that were downloaded earlier. Raises UserError if they were not, or not all parts."""
    here = cached_files(repository)
    names = choose_files(list(here), wanted)
    part = PART.search(names[0]) if names else None
    if not names or (part and len(names) < int(part[2])):
        what = f"only {len(names)} of {int(part[2])} parts of {wanted}" if part else f"nothing of {wanted}"
        raise UserError(
            f"the Hugging Face Hub cannot be reached ({reason}), and of {repository} {what} is in its cache. Check the "
            "network and HF_HUB_OFFLINE, or set JUDGE_MODEL to a .gguf file."
        )
    say(f"weights: {here[names[0]]}, from the cache, as the Hugging Face Hub cannot be reached ({reason})")
    return here[names[0]]
