"""The `init` command: copies the examples, for users who installed slimrl without a checkout."""

import argparse
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

import slimrl
from slimrl.errors import UserError

DIRECTORIES = ("examples", "experiments", "configs")
FIRST_RUN = "slimrl rl @ examples/reverse_text/rl.toml"
ABOUT = f"""\
Copies the examples, the experiments and the debug configurations into a directory, which is created if it is missing.
Then, from there:

  {FIRST_RUN}
"""


def run_init(argv: Sequence[str]) -> int:
    """Run the `init` command: copy the examples to the given directory. Returns the exit status. Raises UserError."""
    parser = argparse.ArgumentParser("slimrl init", description=ABOUT, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="DIR", help="where to; `.` is here")
    arguments = parser.parse_args(argv)
    directory = arguments.directory.expanduser()
    num_files = copy_examples(examples_root(), directory)
    go_there = "" if directory.resolve() == Path.cwd() else f"cd {shlex.quote(str(directory))} && "
    print(f"Copied {num_files} files to {directory}\nNext: {go_there}{FIRST_RUN}")
    return 0


def examples_root() -> Path:
    """Return the directory with the examples. It is in the package of a wheel, or the root of a checkout. Raises
    UserError if there are no examples."""
    package = Path(slimrl.__file__).parent
    for root in (package / "_examples", package.parents[1]):
        if all((root / name).is_dir() for name in DIRECTORIES):
            return root
    raise UserError(
        f"this installation of slimrl, {package}, has no examples beside it: install it from a wheel "
        "(`uv build --wheel`) or from a checkout (`pip install -e .`)."
    )


def copy_examples(root: Path, directory: Path) -> int:
    """Copy all files below the `DIRECTORIES` and return their number. Raises UserError if a file cannot be written, and
    before the first copy if some files exist."""
    files = [path.relative_to(root) for name in DIRECTORIES for path in sorted((root / name).rglob("*"))]
    files = [path for path in files if (root / path).is_file() and "__pycache__" not in path.parts]
    if there := [path for path in files if os.path.lexists(directory / path)]:
        shown = ", ".join(map(str, there[:3])) + (f" and {len(there) - 3} more" if len(there) > 3 else "")
        raise UserError(
            f"{directory} already has {shown}: nothing was copied, as they may be changed. Name another directory, or "
            "delete them."
        )
    try:
        for path in files:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / path, directory / path)
    except OSError as error:
        raise UserError(f"{error.filename} cannot be written: {error.strerror}. Name another directory.") from error
    return len(files)
