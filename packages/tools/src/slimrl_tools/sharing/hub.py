"""Uploads to the Hugging Face Hub with its own client. Files that are there already are not sent again, so a repeated
command resumes an interrupted upload."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.utils._validators import validate_repo_id

from slimrl.errors import UserError, first_line


@dataclass(frozen=True, slots=True)
class Target:
    """The target of an upload. An empty `revision` is the main branch; a missing branch is created. Raises UserError
    for an invalid name of a repository, without a request to the Hub."""

    repository: str
    private: bool = False
    revision: str = ""

    def __post_init__(self) -> None:
        try:
            validate_repo_id(self.repository)
        except HFValidationError as error:
            raise UserError(f"{self.repository!r} can be no repository: {error} Write it as `OWNER/NAME`.") from None


class Hub:
    """The Hub, for the owner of the local token. `again` is the command that resumes after a failure."""

    def __init__(self, again: str) -> None:
        """Read the local token. Raises UserError if it is missing, or if the client is set to stay offline."""
        self._again = again
        if constants.HF_HUB_OFFLINE:
            raise UserError(
                f"HF_HUB_OFFLINE is set, so nothing can be uploaded. Without it: `env -u HF_HUB_OFFLINE {again}`; "
                "`--dry-run` shows what would be."
            )
        if not (token := get_token()):
            raise UserError(
                "there is no token of the Hugging Face Hub here. Make one that may write at "
                f"{constants.ENDPOINT}/settings/tokens, then `hf auth login`, or set HF_TOKEN; and again: `{again}`."
            )
        self._api = HfApi(token=token)

    def full_name(self, repository: str) -> str:
        """Return the repository's name with its owner; by default the token's owner."""
        if "/" in repository:
            return repository
        with self._explain(repository):
            return f"{self._api.whoami()['name']}/{repository}"

    def upload(self, target: Target, directory: Path) -> str:
        """Create the repository if it is missing, upload a directory's files in one commit, and return their address.
        Raises UserError if that fails, or if `target.private` is set for a public repository."""
        api, name, revision = self._api, target.repository, target.revision or None
        with self._explain(name):
            # None leaves the choice to the owner's own default.
            api.create_repo(name, private=target.private or None, exist_ok=True)
            if target.private and not api.repo_info(name).private:
                raise UserError(
                    f"{name} is there already, and public: nothing was uploaded. Make it private in its settings, "
                    f"{constants.ENDPOINT}/{name}/settings, choose another name, or leave out `--private`."
                )
            if revision:
                api.create_branch(name, branch=revision, exist_ok=True)
            message = "Upload by slimrl"
            api.upload_folder(repo_id=name, folder_path=directory, commit_message=message, revision=revision)
        return f"{constants.ENDPOINT}/{name}" + (f"/tree/{revision}" if revision else "")

    @contextmanager
    def _explain(self, name: str) -> Iterator[None]:
        """Return a context that turns failures of the Hub and of the network into a UserError."""
        once_more = f"What has arrived is not sent again: `{self._again}` goes on."
        try:
            yield
        except HfHubHTTPError as error:
            if (status := error.response.status_code) == 401:
                text = (
                    "the Hub does not take the token that is here: it may have expired. `hf auth login` takes a new "
                    f"one; and again: `{self._again}`."
                )
            elif status in (403, 404):
                text = (
                    f"the token that is here may not write to {name} ({status}). `hf auth whoami` says whose it is: "
                    f"give a repository of theirs, or a token that may write for {name.partition('/')[0]}, by `hf auth "
                    "login`."
                )
            else:
                text = f"the Hub refused it ({first_line(error)}). {once_more}"
            raise UserError(text) from error
        except ValueError as error:  # a README.md with metadata that the Hub rejects
            text = f"the Hub refused it ({first_line(error)}). Mend the metadata on top of README.md."
            raise UserError(text) from error
        except RuntimeError as error:  # a large file, by either of the client's ways to send one
            cause = f", {first_line(error.__cause__)}" if error.__cause__ else ""
            raise UserError(f"the upload was interrupted ({first_line(error)}{cause}). {once_more}") from error
        except (httpx.HTTPError, OfflineModeIsEnabled) as error:
            text = f"{constants.ENDPOINT} cannot be reached ({first_line(error)}). {once_more}"
            raise UserError(text) from error
