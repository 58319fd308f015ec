"""The `push` command: uploads weights with their model card to the Hugging Face Hub.

The upload uses the Hub's own client, which does not send a file again that is already on the Hub. So a repeated command
resumes an interrupted upload.
"""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

from slimrl.errors import UserError, first_line
from slimrl.io.invocation import command_prefix
from slimrl.io.secrets import redact_words
from slimrl_tools.sharing.staging import find_source, stage, staged_files

EPILOG = """\
RUN is the output directory of a run, of which the weights that `weights/latest` names are uploaded; name `weights/best`
or `weights/step_N` for others. An adapter is beside them. They get a model card with the run's numbers, unless there is
a README.md beside them. Secrets, and directories of this machine, are taken out of all settings.

A token comes from `hf auth login` or from HF_TOKEN. An upload that was interrupted goes on if it is started again.

  slimrl push outputs/reverse_text me/reverse-135m --dry-run
  slimrl push outputs/reverse_text me/reverse-135m --private
"""


def run_push(argv: Sequence[str]) -> int:
    """Run `slimrl push RUN REPO`. Returns the exit status. Raises UserError if it fails."""
    arguments = _parser().parse_args(argv)
    name: str = arguments.repository
    if name.count("/") != 1:
        raise UserError(f"{name!r} can be no repository. Write it as `OWNER/NAME`.")
    source = find_source(arguments.source)
    with TemporaryDirectory(prefix="slimrl-push-") as directory:
        stage(source, name, Path(directory))
        _show(staged_files(Path(directory)))
        if arguments.dry_run:
            kind = "private" if arguments.private else "public"
            print(f"dry run: nothing was uploaded; it would go to {name}, {kind} if it is new")
        else:
            again = f"{command_prefix()}slimrl push {shlex.join(redact_words(argv))}"
            print(_upload(name, Path(directory), arguments.private, again))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slimrl push", allow_abbrev=False, epilog=EPILOG,
        description="Uploads weights and their model card to the Hugging Face Hub.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("source", type=Path, metavar="RUN", help="a run's directory, or weights of one")
    parser.add_argument("repository", metavar="REPO", help="OWNER/NAME on the Hub")
    parser.add_argument("--private", action="store_true", help="make the repository private if it is new")
    parser.add_argument("--dry-run", action="store_true", help="list the files and sizes, and upload nothing")
    return parser


def _show(files: Mapping[str, Path]) -> None:
    sizes = {name: path.stat().st_size for name, path in files.items()}
    for name, size in sizes.items():
        note = "" if files[name].is_symlink() else "  (changed for the upload)"
        print(f"{_readable(size):>9}  {name}{note}")
    print(f"{_readable(sum(sizes.values())):>9}  in {len(sizes)} files")


def _readable(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size:,} B"


def _upload(name: str, directory: Path, private: bool, again: str) -> str:
    """Upload a directory's files to the repository `name` in one commit, and return their address. Create the
    repository if it is missing. `again` is the command that resumes an upload after a failure.

    Raises UserError without a token, if the upload fails, or if `private` is set for a public repository."""
    if not (token := get_token()):
        raise UserError(
            "there is no token of the Hugging Face Hub here. Make one that may write at "
            f"{constants.ENDPOINT}/settings/tokens, then `hf auth login`, or set HF_TOKEN; and again: `{again}`."
        )
    hub = HfApi(token=token)
    try:
        # None selects the owner's default visibility.
        hub.create_repo(name, private=private or None, exist_ok=True)
        if private and not hub.repo_info(name).private:
            raise UserError(
                f"{name} is there already, and public: nothing was uploaded. Make it private in its settings, "
                f"{constants.ENDPOINT}/{name}/settings, choose another name, or leave out `--private`."
            )
        hub.upload_folder(repo_id=name, folder_path=directory, commit_message="Upload by slimrl")
    # ValueError: a name or metadata of a README.md that the Hub rejects. RuntimeError: a large file was sent in part.
    except (httpx.HTTPError, OfflineModeIsEnabled, ValueError, RuntimeError) as error:
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else 0
        if status in (401, 403, 404):
            raise UserError(
                f"the token that is here may not write to {name} ({status}). `hf auth whoami` says whose it is, "
                f"and `hf auth login` takes another; then again: `{again}`."
            ) from error
        cause = f", {first_line(error.__cause__)}" if error.__cause__ else ""
        raise UserError(
            f"the upload to {constants.ENDPOINT} failed ({first_line(error)}{cause}). What has arrived is not sent "
            f"again: `{again}` goes on."
        ) from error
    return f"{constants.ENDPOINT}/{name}"
