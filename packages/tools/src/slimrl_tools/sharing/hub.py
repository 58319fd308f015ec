"""Uploads to the Hugging Face Hub with its own client. Files that are already on the Hub are not sent again, so a
repeated command resumes an interrupted upload."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.utils._validators import validate_repo_id

from slimrl.errors import UserError, first_line


def check_name(repository: str) -> None:
    """Raise UserError for a name that no repository can have, without a request to the Hub."""
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise UserError(f"{repository!r} can be no repository: {error} Write it as `OWNER/NAME`.") from None


class Hub:
    """A client of the Hub with the local token. `again` is the command that resumes an upload after a failure."""

    def __init__(self, again: str) -> None:
        """Read the local token. Raises UserError if it is missing."""
        if not (token := get_token()):
            raise UserError(
                "there is no token of the Hugging Face Hub here. Make one that may write at "
                f"{constants.ENDPOINT}/settings/tokens, then `hf auth login`, or set HF_TOKEN; and again: `{again}`."
            )
        self._again, self._api = again, HfApi(token=token)

    def full_name(self, repository: str) -> str:
        """Return the repository's name with its owner, by default the token's owner."""
        if "/" in repository:
            return repository
        with self._explain(repository):
            return f"{self._api.whoami()['name']}/{repository}"

    def upload(self, name: str, directory: Path, private: bool, revision: str) -> str:
        """Upload a directory's files to the repository `name` in one commit, and return their address. Create the
        repository and the branch `revision` if they are missing; an empty `revision` means the main branch.

        Raises UserError if the upload fails, or if `private` is set for a public repository."""
        with self._explain(name):
            # None selects the owner's default.
            self._api.create_repo(name, private=private or None, exist_ok=True)
            if private and not self._api.repo_info(name).private:
                raise UserError(
                    f"{name} is there already, and public: nothing was uploaded. Make it private in its settings, "
                    f"{constants.ENDPOINT}/{name}/settings, choose another name, or leave out `--private`."
                )
            if revision:
                self._api.create_branch(name, branch=revision, exist_ok=True)
            message, branch = "Upload by slimrl", revision or None
            self._api.upload_folder(repo_id=name, folder_path=directory, commit_message=message, revision=branch)
        return f"{constants.ENDPOINT}/{name}" + (f"/tree/{revision}" if revision else "")

    @contextmanager
    def _explain(self, name: str) -> Iterator[None]:
        """Context manager: turn failures of the Hub and of the network into a UserError with advice."""
        try:
            yield
        # ValueError: metadata of a README.md that the Hub rejects. RuntimeError: a large file was sent only in part.
        except (httpx.HTTPError, OfflineModeIsEnabled, ValueError, RuntimeError) as error:
            status = error.response.status_code if isinstance(error, HfHubHTTPError) else 0
            if status in (401, 403, 404):
                raise UserError(
                    f"the token that is here may not write to {name} ({status}). `hf auth whoami` says whose it is, "
                    f"and `hf auth login` takes another; then again: `{self._again}`."
                ) from error
            cause = f", {first_line(error.__cause__)}" if error.__cause__ else ""
            raise UserError(
                f"the upload to {constants.ENDPOINT} failed ({first_line(error)}{cause}). What has arrived is not sent "
                f"again: `{self._again}` goes on."
            ) from error
