"""The `push` command: uploads weights with their model card, an adapter, or a run to the Hugging Face Hub.

The upload uses the Hub's own client, which does not send a file again that is already on the Hub. So a repeated command
resumes an interrupted upload.
"""

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import httpx
from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.utils._validators import validate_repo_id

from slimrl.config.reading.saved import read_run_config
from slimrl.config.run import TrainingRunConfig
from slimrl.errors import UserError, first_line
from slimrl.io.invocation import command_prefix
from slimrl.io.run_dir import step_of
from slimrl.io.secrets import redact_words
from slimrl_tools.sharing.staging import Source, What, find_source, stage, staged_files

EPILOG = """\
RUN is the output directory of a run, of which the weights that `weights/latest` names are uploaded; name `weights/best`
or `weights/step_N` for others. They get a model card with the run's numbers, unless you have written a README.md
beside them. Secrets, and directories of this machine, are taken out of all settings.

  weights  the weights, with an adapter beside them if there is one
  adapter  the LoRA adapter alone, for PEFT
  run      the weights, and below run/ the settings, metrics, held-out results and pictures. No checkpoints; rollouts
           with --rollouts alone, since nobody has read them

A token comes from `hf auth login` or from HF_TOKEN. An upload that was interrupted goes on if it is started again.

  slimrl push outputs/reverse_text me/reverse-135m --dry-run
  slimrl push outputs/reverse_text me/reverse-135m --private
  slimrl push outputs/reverse_text/weights/best me/reverse-135m --revision best
"""


def run_push(argv: Sequence[str]) -> int:
    """Run `slimrl push RUN REPO`. Returns the exit status. Raises UserError if it fails."""
    arguments = _parser().parse_args(argv)
    name: str = arguments.repository
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise UserError(f"{name!r} can be no repository: {error} Write it as `OWNER/NAME`.") from None
    source, hub = find_source(arguments.source), None
    if not arguments.dry_run:
        hub = _Hub(f"{command_prefix()}slimrl push {shlex.join(redact_words(argv))}")
        name = hub.full_name(name)
    with TemporaryDirectory(prefix="slimrl-push-") as directory:
        remarks = stage(source, arguments.what, name, Path(directory), arguments.rollouts)
        _show(staged_files(Path(directory)), [*remarks, *_progress_note(source)])
        if hub is None:
            kind = "private" if arguments.private else "public"
            print(f"dry run: nothing was uploaded; it would go to {name}, {kind} if it is new")
        else:
            print(hub.upload(name, Path(directory), arguments.private, arguments.revision))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slimrl push", allow_abbrev=False, epilog=EPILOG,
        description="Uploads what a run has made to the Hugging Face Hub.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("source", type=Path, metavar="RUN", help="a run's directory, or weights of one")
    parser.add_argument("repository", metavar="REPO", help="OWNER/NAME on the Hub; NAME alone is yours")
    parser.add_argument("--what", choices=get_args(What), default="weights", help="what to upload (weights)")
    parser.add_argument("--private", action="store_true", help="make the repository private if it is new")
    parser.add_argument("--revision", default="", metavar="BRANCH", help="the branch; it is made if it is not there")
    parser.add_argument("--rollouts", action="store_true", help="with `--what run`, the rollouts as well")
    parser.add_argument("--dry-run", action="store_true", help="list the files and sizes, and upload nothing")
    return parser


def _show(files: Mapping[str, Path], remarks: Sequence[str]) -> None:
    sizes = {name: path.stat().st_size for name, path in files.items()}
    for name, size in sizes.items():
        note = "" if files[name].is_symlink() else "  (changed for the upload)"
        print(f"{_readable(size):>9}  {name}{note}")
    print(f"{_readable(sum(sizes.values())):>9}  in {len(sizes)} files")
    for remark in remarks:
        print(f"note: {remark}")


def _progress_note(source: Source) -> Iterator[str]:
    """Yield a note on the progress of the run that saved the weights. Yield nothing if the run is finished or
    unknown."""
    config = read_run_config(source.run_dir) if source.run_dir else None
    if isinstance(config, TrainingRunConfig) and not source.weights.with_name(f"step_{config.max_steps}").is_dir():
        step = step_of(source.weights)
        yield f"the run is not done: these are its weights of step {step} of {config.max_steps}"


def _readable(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size:,} B"


class _Hub:
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
            # None selects the owner's default visibility.
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
