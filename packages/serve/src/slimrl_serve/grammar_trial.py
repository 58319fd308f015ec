"""Compiles a grammar in a separate process with limits: llguidance cannot be interrupted, and may need minutes and
gigabytes for a small schema.

The process uses tokens of one byte each, because the slow part, the automaton of patterns, does not depend on the
tokens.
"""

import contextlib
import json
import re
import resource
import subprocess
import sys

from slimrl.errors import require

MAX_BYTES = 2**31  # of memory
TRIAL_S = 5.0
READY = b"ready"  # the process has read the grammar
PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from slimrl_serve.grammar_trial import main; main()"
# Slow parts: patterns, intersections, counted repeats and multiples, also if letters are written as escapes. Long
# sources are slow too, because the time for many properties or a long pattern grows with the square of the length.
COSTLY = re.compile(r'"pattern|allOf|multipleOf|[&~]|\{\s*\d|\\u00[2-7]')
MAX_UNTRIED = 2**12  # characters, which take up to 2 s


class GrammarError(Exception):
    """A grammar cannot be used, or a sequence cannot continue with it; the message is the reason, in one line."""


def is_costly(source: str) -> bool:
    """Return True if a source may take long to compile."""
    return len(source) > MAX_UNTRIED or COSTLY.search(source) is not None


def try_to_compile(source: str) -> None:
    """Compile a source in a separate process. Raises GrammarError if it exceeds the limit of time or memory. Does not
    raise if llguidance refuses the source within the limits."""
    places = json.dumps([place for place in sys.path if isinstance(place, str)])
    command, text = [sys.executable, "-c", PROGRAM, places], source.encode("utf-8", "replace")
    try:
        subprocess.run(command, input=text, capture_output=True, timeout=TRIAL_S, check=True)
    except subprocess.TimeoutExpired:
        raise GrammarError(f"it takes longer than {TRIAL_S:g} s to compile; make it simpler") from None
    except subprocess.CalledProcessError as error:
        if error.stdout == READY:  # otherwise the process failed before it read the grammar
            raise GrammarError("it takes too much memory to compile; make it simpler") from None


def main() -> None:
    """Compile the source on standard input; a refusal by llguidance does not count as a failure."""
    llguidance = require("llguidance", "server", "a grammar")
    with contextlib.suppress(ValueError, OSError):
        if sys.platform == "linux":  # other systems may not support the limit
            resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (int(2 * TRIAL_S), int(2 * TRIAL_S)))  # in case the server is gone
    source = sys.stdin.read()
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    with contextlib.suppress(ValueError, RecursionError):
        if not source.startswith("{"):
            source = llguidance.grammar_from("grammar", source)
        matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), source, log_level=0)
        if not matcher.is_error():
            matcher.compute_bitmask()
