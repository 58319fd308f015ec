"""A command in a process of its own, and the heavy modules that it has imported."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HEAVY = ("torch", "transformers", "matplotlib")
SCRIPT = """
import sys
from slimrl import cli
try:
    status = cli.run(sys.argv[1:])
except SystemExit as ended:
    status = ended.code
print(status, [name for name in HEAVY if name in sys.modules], file=sys.stderr)
"""


def run(*words: object, missing: str = "", heavy: Sequence[str] = HEAVY) -> tuple[str, str]:
    """The output of a command, and its last line: the exit status and the heavy modules that it has imported."""
    script = f"HEAVY = {heavy!r}\n{SCRIPT}"
    if missing:
        script = f"import sys; sys.modules[{missing!r}] = None\n{script}"
    done = subprocess.run([sys.executable, "-c", script, *map(str, words)], capture_output=True, text=True, check=False)
    *said, last = done.stderr.strip().splitlines()
    return done.stdout + "\n".join(said), last


def make_run(path: Path) -> Path:
    """The directory of a run of one step."""
    path.mkdir()
    (path / "metrics.jsonl").write_text(json.dumps({"step": 0, "reward/mean": 0.5}) + "\n", encoding="utf-8")
    return path
