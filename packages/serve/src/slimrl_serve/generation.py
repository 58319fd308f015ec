"""Reads the sampling fields of a request, and turns the tokens of a choice into text and scores."""

from dataclasses import dataclass

from slimrl.inference.scheduler import Request, RequestOptions
from slimrl.types import SamplingParams
from slimrl_serve.bodies import MAX_TOP, Sampling
from slimrl_serve.errors import bad_request
from slimrl_serve.service import Service
from slimrl_serve.text import GrowingText, Score
from slimrl_serve.worker import Job

MAX_SCORES = 2**18  # log-probabilities in a reply, some 80 bytes of JSON each
COLDEST = 0.01  # logits divided by a smaller temperature may overflow; this temperature is nearly greedy


@dataclass(slots=True, eq=False, kw_only=True)
class Choice(Job):
    """One completion. Its first `num_sent` tokens and `shown` characters have already been sent."""

    index: int
    text: GrowingText
    num_sent: int = 0
    shown: int = 0

    @property
    def sequence(self) -> Request:
        """The engine's request; the choice must have been submitted."""
        assert self.request is not None
        return self.request

    @property
    def token_ids(self) -> list[int]:
        """The tokens sampled so far, including a stop token."""
        if self.request is None:
            return []
        # The engine's thread appends meanwhile: only tokens with a version are complete.
        return self.request.completion_ids[: len(self.request.versions)]

    @property
    def finish_reason(self) -> str:
        """The reason why the completion stopped."""
        return str(self.sequence.finish_reason)

    def scores(self, start: int, end: int, num_top: int) -> list[Score]:
        """Return the scores of the sampled tokens `start..end`."""
        request, scores = self.sequence, list[Score]()
        for index in range(start, end):
            token, logprob = request.tokens[len(request.prompt) + index], request.logprobs[index]
            # The sampled token may also be one of the top tokens. Write the same log-probability there, because the two
            # values are computed separately and may differ in the last bit.
            top = request.top[index] if num_top else ()
            scores.append((token, logprob, tuple((one, logprob if one == token else value) for one, value in top)))
        return scores

    def prompt_scores(self, num_top: int) -> list[Score]:
        """Return the scores of the prompt's tokens, except the first token, which has none."""
        scored = zip(self.prompt[1:], self.sequence.scored, strict=True)
        return [(token, score.logprob, score.top[:num_top]) for token, score in scored]

    def text_so_far(self, done: bool) -> str:
        """Return the text that may be sent, without the stop token. If `done`, return the whole text."""
        token_ids = self.token_ids
        if token_ids and token_ids[-1] in self.sequence.stop_ids:
            token_ids = token_ids[:-1]
        # With stop strings, the engine's thread extends the text after every token, up to the last token or the stop
        # string.
        if not self.params.stop or (done and self.text.end < 0):
            self.text.grow(token_ids, closed=done)
        return self.text.visible(closed=done)


def check_scores(service: Service, num: int) -> None:
    """Raise ApiError 400 for more log-probabilities than a reply may have. The log-probabilities of one full context
    are always allowed."""
    most = max(MAX_SCORES, service.config.context_len * (MAX_TOP + 1))
    if num > most:
        raise bad_request(
            f"The reply could have {num} log-probabilities, and a reply has at most {most}. Ask for fewer "
            "completions, tokens (max_tokens) or top_logprobs, or send several requests.",
            "logprobs",
        )


def sampling_params(body: Sampling, max_tokens: int, seed: int) -> SamplingParams:
    """Return the engine's parameters of a choice."""
    temperature = 1.0 if body.temperature is None else body.temperature
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=max(temperature, COLDEST) if temperature else 0.0,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(0, body.top_k or 0),
        min_p=body.min_p or 0.0,
        stop=tuple(stop),
        seed=seed,
    )


def request_options(body: Sampling, num_tokens: int) -> RequestOptions:
    """Return the engine's less common options for a choice; the caller adds the options of log-probabilities.
    `num_tokens` is the size of the vocabulary. Raises ApiError 400 if `stop_token_ids` is out of range."""
    stop_ids = frozenset(body.stop_token_ids or ())
    if stop_ids and max(stop_ids) >= num_tokens:
        raise bad_request(f"stop_token_ids: the model only knows the ids 0 to {num_tokens - 1}.", "stop_token_ids")
    return RequestOptions(stop_ids=stop_ids, ignore_eos=bool(body.ignore_eos))
