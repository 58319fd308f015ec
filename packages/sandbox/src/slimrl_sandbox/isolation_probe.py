"""Checks bubblewrap, which isolates code that a model has written, by running a small program in it."""

import asyncio
import shutil

from slimrl.errors import UserError
from slimrl.monitor.findings import Finding, Level
from slimrl_sandbox.base import Execution
from slimrl_sandbox.local import BubblewrapSandbox

SUBJECT = "isolation"


def probe() -> list[Finding]:
    """Return one finding, which reports whether bubblewrap is installed and runs a program."""
    if shutil.which("bwrap") is None:
        text = "bubblewrap is not installed, so code of a policy (wiki-search with `format = code`) cannot be run here"
        return [Finding(SUBJECT, Level.NOTE, text, "`apt-get install bubblewrap`, or run the sandbox in a container")]
    try:
        done = asyncio.run(_run("print(6 * 7)"))
    except UserError as error:  # its message includes the remedy
        return [Finding(SUBJECT, Level.PROBLEM, str(error))]
    if done.stdout.strip() != "42":
        text = f"bubblewrap runs, and the program in it does not: {done.error or done.stderr}"
        return [Finding(SUBJECT, Level.PROBLEM, text, "Run `uv run python scripts/test_sandbox.py`, which says more.")]
    return [Finding(SUBJECT, Level.OK, f"bubblewrap runs code of a policy (in {done.duration_s * 1000:.0f} ms)")]


async def _run(program: str) -> Execution:
    async with BubblewrapSandbox({}) as sandbox:
        return await sandbox.run(program, timeout_s=5.0)
