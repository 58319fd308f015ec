"""Compiles grammars that a reply must follow. The package llguidance finds the allowed next tokens.

A grammar is compiled once, and many sequences may use it. Each sequence has a copy with a state that follows the
sequence's tokens. Grammars may be hostile, so the cost of compiling and of each step is bounded. If a grammar exceeds
these bounds, or llguidance does not support it, a `GrammarError` with the reason is raised.
"""

import functools
import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from slimrl.errors import require
from slimrl_serve.grammar_trial import GrammarError

Grammar = Any  # a compiled grammar, or the state of one sequence in it: llguidance's `LLMatcher`
PURPOSE = "A reply in a given format"
MAX_THREADS = 8
SHORT = 300  # characters of a reason
# With these limits, one step may take some 10 ms, and the states of one sequence's lexer some 40 MB.
LIMITS = {"max_lexer_states": 20_000, "max_grammar_size": 100_000, "verbose_errors": False}


class GrammarCompiler:
    """Compiles grammars for the tokens of one model. The tokens `stop_ids` are allowed where the grammar may end.

    Creating a compiler takes a second or two. Raises UserError if the package is missing, and GrammarError for a
    tokenizer that llguidance cannot read.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, num_tokens: int, stop_ids: Iterable[int]) -> None:
        self._library = require("llguidance", "server", PURPOSE)
        read = require("llguidance.hf", "server", PURPOSE).from_tokenizer
        try:
            self._tokens = read(tokenizer, n_vocab=num_tokens, eos_token=sorted(stop_ids))
        except (ValueError, RuntimeError) as error:
            raise GrammarError(f"the model's tokenizer cannot be constrained: {one_line(str(error))}") from error

    def compile(self, source: str) -> Grammar:
        """Compile a source: JSON as from `lark_source`, or a text in GBNF or Lark. Raises GrammarError if the source
        cannot be used."""
        limits = self._library.LLParserLimits(**LIMITS)
        if not source.startswith("{"):
            try:
                source = self._library.grammar_from("grammar", source)
            except (ValueError, RecursionError) as error:
                raise GrammarError(one_line(str(error))) from error
        state = self._library.LLMatcher(self._tokens, source, log_level=0, limits=limits)
        # Compute the first mask, too: most grammars that are too large fail there.
        if not state.is_error():
            state.compute_bitmask()
        if reason := one_line(state.get_error()):
            raise GrammarError(reason)
        return state


def regex_source(pattern: str) -> str:
    """Return the source of a grammar for texts that fully match a regular expression."""
    # Escape each slash that is not escaped yet.
    slashed = re.sub(r"(\\.)|/", lambda found: found[1] or "\\/", pattern, flags=re.DOTALL)
    return lark_source([f"start: /{slashed}/"])


def lark_source(lines: Sequence[str]) -> str:
    """Return the source of a grammar, given the lines of a Lark grammar."""
    return json.dumps({"grammars": [{"lark_grammar": "\n".join(lines) + "\n"}]})


def literal(text: str) -> str:
    """Return a text as a literal in Lark."""
    return json.dumps(text, ensure_ascii=False)


def token_masks(matchers: Sequence[Grammar], num_tokens: int, device: torch.device) -> Tensor:
    """Return a mask (N, V) for N matchers: True for each allowed next token. A matcher with an error allows only the
    end of the sequence."""
    # llguidance writes a bit for each token, in words of 32.
    num_words = (num_tokens + 31) // 32
    packed = torch.zeros(len(matchers), num_words, dtype=torch.int32)
    if len(matchers) == 1:
        matchers[0].unsafe_compute_mask_ptr(packed.data_ptr(), 4 * num_words)
    else:
        places = [(matcher, row) for row, matcher in enumerate(matchers)]
        _executor().unsafe_compute_mask_ptr(places, packed.data_ptr(), 4 * num_words, len(matchers))
    # Send bits to the device, an eighth of the bytes of booleans, and unpack them there.
    bytes_NB = packed.view(torch.uint8).to(device)
    shifts = torch.arange(8, dtype=torch.uint8, device=device)
    bits = (bytes_NB[:, :, None] >> shifts) & 1
    return bits.view(len(matchers), -1)[:, :num_tokens].bool()


def one_line(text: str) -> str:
    """Return the text on one line, shortened."""
    line = " ".join(text.replace("<non-verbose/>", "").split())
    return line if len(line) <= SHORT else f"{line[:SHORT]} [...]"


@functools.cache
def _executor() -> Any:
    return require("llguidance", "server", PURPOSE).LLExecutor(num_threads=min(MAX_THREADS, os.cpu_count() or 1))
