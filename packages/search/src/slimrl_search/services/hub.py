"""The Hugging Face Hub and its cache, as far as a judge's weights need them. Without a network the cache is enough."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
from huggingface_hub import HfApi, constants, scan_cache_dir, try_to_load_from_cache
from huggingface_hub.errors import CacheNotFound, RepositoryNotFoundError

from slimrl.errors import UserError, first_line
from slimrl_search.services.needs import check_space

# Whatever the Hub's client raises where the network or the Hub fails; its own errors are of these kinds too.
FAILURES = (httpx.HTTPError, OSError)


class Unreachable(Exception):
    """The Hub did not answer, or not as it should; the text says why."""


def hub_model(repository: str) -> Any:
    """What the Hub says of a model, the sizes of its files included.

    Raises UserError if there is no such model, and Unreachable if the Hub does not say.
    """
    try:
        return HfApi().model_info(repository, files_metadata=True)
    except RepositoryNotFoundError as error:
        raise UserError(
            f"there is no model {repository} on the Hugging Face Hub, or it is private: then run `hf auth login`."
        ) from error
    except FAILURES as error:
        raise Unreachable(first_line(error)) from error


def check_room(info: Any, names: Iterable[str]) -> int:
    """The bytes that are yet to be fetched of a model's files. Raises UserError if the disk has no room for them."""
    sizes = {one.rfilename: one.size or 0 for one in info.siblings or ()}
    missing = [name for name in names if not _is_cached(info, name)]
    needed = sum(sizes[name] for name in missing)
    check_space(Path(constants.HF_HUB_CACHE), needed, f"{info.id} ({', '.join(missing)})", "HF_HOME")
    return needed


def cached_files(repository: str) -> dict[str, Path]:
    """The files of the newest cached revision: path within the repository to path on disk."""
    try:
        found = [repo for repo in scan_cache_dir().repos if repo.repo_id == repository and repo.repo_type == "model"]
    except CacheNotFound:
        return {}
    revisions = sorted((one for repo in found for one in repo.revisions), key=lambda one: one.last_modified)
    return {
        file.file_path.relative_to(one.snapshot_path).as_posix(): file.file_path
        for one in revisions[-1:]
        for file in one.files
    }


def _is_cached(info: Any, name: str) -> bool:
    return isinstance(try_to_load_from_cache(info.id, name, revision=info.sha), str)
