"""The `push` command: uploads weights with their model card, an adapter, or a run, to the Hugging Face Hub."""

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

from slimrl.config.reading.saved import read_run_config
from slimrl.config.run import TrainingRunConfig
from slimrl.io.invocation import command_prefix
from slimrl.io.run_dir import step_of
from slimrl.io.secrets import redact_words
from slimrl_tools.sharing.hub import Hub, check_name
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
    """Run `slimrl push RUN REPO`. Returns the exit status. Raises UserError."""
    arguments = _parser().parse_args(argv)
    name: str = arguments.repository
    check_name(name)
    source, hub = find_source(arguments.source), None
    if not arguments.dry_run:
        hub = Hub(f"{command_prefix()}slimrl push {shlex.join(redact_words(argv))}")
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
    """Yield a note on the progress of the run that saved the weights, unless the run is finished or unknown."""
    config = read_run_config(source.run_dir) if source.run_dir else None
    if isinstance(config, TrainingRunConfig) and not source.weights.with_name(f"step_{config.max_steps}").is_dir():
        step = step_of(source.weights)
        yield f"the run is not done: these are its weights of step {step} of {config.max_steps}"


def _readable(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size:,} B"
