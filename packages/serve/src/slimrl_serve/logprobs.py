"""Formats log-probabilities for OpenAI's routes: of sampled tokens, and with `echo` of the prompt's tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slimrl.inference.sampling import Top
from slimrl_serve.generation import Choice
from slimrl_serve.text import Vocabulary

Score = tuple[int, float, Top]  # a token, its log-probability, and the most likely tokens at its position


@dataclass(frozen=True, slots=True)
class TokenNames:
    """Writes tokens as text, or as `token_id:17` if `as_ids`."""

    vocabulary: Vocabulary
    as_ids: bool = False

    def name(self, token: int) -> str:
        return f"token_id:{token}" if self.as_ids else self.vocabulary.token_text(token)

    def entry(self, token: int, logprob: float) -> dict[str, Any]:
        """Return a token in the form of chat's lists."""
        return {"token": self.name(token), "logprob": logprob, "bytes": list(self.vocabulary.token_bytes(token))}


def sampled_scores(choice: Choice, start: int, end: int, num_top: int) -> list[Score]:
    """Return the scores of the sampled tokens `start..end`."""
    request, scores = choice.request, list[Score]()
    for index in range(start, end):
        token, logprob = request.tokens[len(request.prompt) + index], request.logprobs[index]
        # The sampled token must have the logged log-probability in both places. They are computed separately, and may
        # differ in the last bit.
        top = request.top[index] if num_top else ()
        scores.append((token, logprob, tuple((other, logprob if other == token else value) for other, value in top)))
    return scores


def prompt_scores(choice: Choice, num_top: int) -> list[Score]:
    """Return the scores of the prompt's tokens after the first."""
    scored = zip(choice.request.prompt[1:], choice.prompt_scores, strict=True)
    return [(token, score.logprob, score.top[:num_top]) for token, score in scored]


def chat_logprobs(names: TokenNames, scores: Sequence[Score]) -> dict[str, Any]:
    """Return the `logprobs` of a chat's tokens."""
    return {
        "content": [
            names.entry(token, logprob) | {"top_logprobs": [names.entry(*pair) for pair in top]}
            for token, logprob, top in scores
        ]
    }


def completion_logprobs(
    names: TokenNames, tokens: Sequence[int], scores: Sequence[Score | None], num_top: int, offsets: list[int]
) -> dict[str, Any]:
    """Return the `logprobs` of a completion's tokens; the first token of an echoed prompt has no score."""
    return {
        "tokens": [names.name(token) for token in tokens],
        "token_logprobs": [score and score[1] for score in scores],
        "top_logprobs": [score and _by_name(names, *score) for score in scores] if num_top else None,
        "text_offset": offsets,
    }


def _by_name(names: TokenNames, token: int, logprob: float, top: Top) -> dict[str, float]:
    """Return the log-probabilities of the most likely tokens and of the token itself, keyed by text. If two tokens have
    the same text, use the more likely token."""
    named: dict[str, float] = {}
    for other, theirs in top if any(other == token for other, _ in top) else (*top, (token, logprob)):
        named.setdefault(names.name(other), theirs)
    return named
