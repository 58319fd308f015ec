"""Formats log-probabilities for OpenAI's routes and for vLLM's `prompt_logprobs`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slimrl.inference.sampling import ScoredToken, Top
from slimrl_serve.generation import Choice
from slimrl_serve.text import GrowingText, Vocabulary


@dataclass(frozen=True, slots=True)
class TokenNames:
    """Writes tokens as text, or as `token_id:17` if `as_ids`."""

    vocabulary: Vocabulary
    as_ids: bool = False

    def name(self, token: int) -> str:
        return f"token_id:{token}" if self.as_ids else self.vocabulary.token_text(token)


def chat_logprobs(names: TokenNames, choice: Choice, start: int, end: int, num_top: int) -> dict[str, Any]:
    """The `logprobs` of a chat's sampled tokens `start..end`."""
    request = choice.request
    content = []
    for index in range(start, end):
        token, logprob = request.tokens[len(request.prompt) + index], request.logprobs[index]
        # Chat lists the sampled token apart from the likeliest ones, completions (below) among them.
        top = _top_as_logged(request.top[index], token, logprob) if num_top else ()
        entry: dict[str, Any] = _entry(names, token, logprob)
        entry["top_logprobs"] = [_entry(names, *pair) for pair in top]
        content.append(entry)
    return {"content": content}


class TextOffsets:
    """Computes where in a text the tokens of a growing sequence begin.

    The offsets `before` are those of an echoed prompt; the sequence's own text begins at `start`. A token that
    completes no character has length 0, as has one without text.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], start: int, before: Sequence[int] = ()) -> None:
        self._text = GrowingText(decode)
        self._tokens: list[int] = []
        self._start = start
        self._before = before

    def take(self, tokens: Sequence[int]) -> list[int]:
        """The offsets of the next tokens; the first call also returns those of the prompt."""
        offsets, self._before = list(self._before), ()
        for token in tokens:
            # Before the token: a token begins where the text was settled until then.
            offsets.append(max(0, self._start + len(self._text.settled)))
            self._tokens.append(token)
            self._text.grow(self._tokens)
        return offsets


def completion_logprobs(
    names: TokenNames,
    tokens: Sequence[int],
    scores: Sequence[tuple[float, Top] | None],
    num_top: int,
    offsets: list[int],
) -> dict[str, Any]:
    """The `logprobs` of a completion's tokens; the first token of an echoed prompt has no score."""
    return {
        "tokens": [names.name(token) for token in tokens],
        "token_logprobs": [None if score is None else score[0] for score in scores],
        "top_logprobs": [None if score is None else _by_name(names, score[1]) for score in scores] if num_top else None,
        "text_offset": offsets,
    }


def completion_scores(choice: Choice, start: int, end: int, num_top: int) -> list[tuple[float, Top] | None]:
    """The log-probability of each sampled token `start..end`, and the likeliest tokens with the sampled one."""
    request = choice.request
    scores: list[tuple[float, Top] | None] = []
    for index in range(start, end):
        token, logprob = request.tokens[len(request.prompt) + index], request.logprobs[index]
        top = _with_own(_top_as_logged(request.top[index], token, logprob), token, logprob) if num_top else ()
        scores.append((logprob, top))
    return scores


def prompt_scores(choice: Choice, num_top: int) -> list[tuple[float, Top] | None]:
    """The same scores for the prompt's tokens; the first has none."""
    scored = zip(choice.request.prompt[1:], choice.prompt_scores, strict=True)
    return [None, *((s.logprob, _with_own(s.top[:num_top], token, s.logprob)) for token, s in scored)]


def prompt_logprobs(names: TokenNames, choice: Choice, num_top: int) -> list[dict[str, Any] | None]:
    """The `prompt_logprobs` in vLLM's format: for each token its own score and those of the likeliest, by token id."""
    scored = zip(choice.request.prompt[1:], choice.prompt_scores, strict=True)
    return [None, *(_prompt_entry(names, token, score, num_top) for token, score in scored)]


def _prompt_entry(names: TokenNames, token: int, score: ScoredToken, num_top: int) -> dict[str, Any]:
    # vLLM's order: the prompt's own token first, whatever its rank, then the likeliest.
    ranked = [(token, score.logprob, score.rank)]
    ranked += [(other, logprob, rank) for rank, (other, logprob) in enumerate(score.top[:num_top], 1) if other != token]
    return {
        str(other): {"logprob": logprob, "rank": rank, "decoded_token": names.vocabulary.token_text(other)}
        for other, logprob, rank in ranked
    }


def _entry(names: TokenNames, token: int, logprob: float) -> dict[str, Any]:
    return {"token": names.name(token), "logprob": logprob, "bytes": list(names.vocabulary.token_bytes(token))}


def _top_as_logged(top: Top, token: int, logprob: float) -> Top:
    """The likeliest tokens, where the sampled one has the log-probability that was logged.

    The two are computed separately and may differ in the last bit.
    """
    return tuple((other, logprob if other == token else theirs) for other, theirs in top)


def _with_own(top: Top, token: int, logprob: float) -> Top:
    return top if any(other == token for other, _ in top) else (*top, (token, logprob))


def _by_name(names: TokenNames, top: Top) -> dict[str, float]:
    """The log-probabilities by the tokens' text; if two tokens have the same text, the likelier one counts."""
    named: dict[str, float] = {}
    for token, logprob in top:
        named.setdefault(names.name(token), logprob)
    return named
