"""How many samplers a run is wanted to have while it goes on: a file in its directory that its supervisor looks at."""

from pathlib import Path

from slimrl.io.files import replace_file

FILE = "transport/num_samplers"


def write_scale(output_dir: Path, num: int) -> None:
    """Ask the run in a directory to have so many samplers."""
    replace_file(output_dir / FILE, [str(num).encode()])


def read_scale(output_dir: Path) -> int:
    """How many samplers were asked for; 0 if nobody has asked."""
    try:
        text = (output_dir / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return 0
    return int(text) if text.isdecimal() else 0


def clear_scale(output_dir: Path) -> None:
    """Forget what was asked for: the settings of a start count."""
    (output_dir / FILE).unlink(missing_ok=True)
