"""Compiles a grammar in a process of its own, which can be ended: llguidance cannot be interrupted, and a small schema
may take it minutes and gigabytes. Run as a script, it reads a source from its standard input.

The process has tokens of one byte each. What takes too long, the automaton of patterns, does not depend on the tokens.
"""

import asyncio
import contextlib
import sys

MAX_BYTES = 2**31  # of memory
TRIAL_S = 5.0


class TrialError(Exception):
    """A grammar takes more time or memory to compile than it may."""


async def try_to_compile(source: str) -> None:
    """Return if a source compiles, or is refused, within the limits. Raises TrialError otherwise."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", __file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(TRIAL_S):
            await process.communicate(source.encode("utf-8", "replace"))
    except TimeoutError:
        raise TrialError(f"it takes longer than {TRIAL_S:g} s to compile; make its patterns simpler") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode:
        raise TrialError("it takes too much memory to compile; make its patterns simpler")


def main() -> None:
    """Compile the source on standard input; llguidance's own refusal is no failure."""
    import resource

    import llguidance

    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(2 * TRIAL_S), int(2 * TRIAL_S)))  # should the server be gone
    source = sys.stdin.read()
    with contextlib.suppress(ValueError, RecursionError):
        if not source.startswith("{"):
            source = llguidance.grammar_from("grammar", source)
        matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), source, log_level=0)
        if not matcher.is_error():
            matcher.compute_bitmask()


if __name__ == "__main__":
    main()
