"""Reads the sampling fields of a request, and turns the tokens of a choice into text and scores."""

from dataclasses import dataclass
from functools import partial

from slimrl.inference.scheduler import Request, RequestOptions
from slimrl.types import SamplingParams
from slimrl_serve.bodies import LONGEST_NAME, MAX_TOP, Sampling
from slimrl_serve.errors import bad_request
from slimrl_serve.grammar import Grammar
from slimrl_serve.service import Service
from slimrl_serve.shaping import UNSHAPED, Shaper, Shaping
from slimrl_serve.text import GrowingText, Score
from slimrl_serve.worker import Job

MAX_SCORES = 2**18  # log-probabilities in a reply, some 80 bytes of JSON each
COLDEST = 0.01  # logits divided by a smaller temperature may overflow; this temperature is nearly greedy


@dataclass(slots=True, eq=False, kw_only=True)
class Choice(Job):
    """One completion. Its first `told` tokens and `shown` characters have already been sent; the next token starts at
    `offset` in the text.

    `first` is the first of several choices with the same prompt; None in the first itself. Only the first choice
    computes the scores of the prompt, if these are requested.
    """

    index: int
    text: GrowingText
    max_tokens: int
    first: "Choice | None" = None
    told: int = 0
    shown: int = 0
    offset: int = 0

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
        return self.request.completion_ids[: min(len(self.request.versions), self.max_tokens)]

    @property
    def finish_reason(self) -> str:
        """The reason why the completion stopped; "length" if no token was requested."""
        return str(self.sequence.finish_reason) if self.max_tokens else "length"

    @property
    def prompt_is_scored(self) -> bool:
        """True if the prompt's scores are complete, or were not requested."""
        first = self.first or self
        return first.options.prompt_logprobs < 0 or first.first_token_at > 0.0

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
        scored = zip(self.prompt[1:], (self.first or self).sequence.scored, strict=True)
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
        max_tokens=max(1, max_tokens),  # the engine samples at least one token; the reply then omits it
        temperature=max(temperature, COLDEST) if temperature else 0.0,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(0, body.top_k or 0),
        min_p=body.min_p or 0.0,
        stop=tuple(stop) if max_tokens else (),
        seed=seed,
    )


def request_options(body: Sampling, max_tokens: int, num_tokens: int, grammar: Grammar | None) -> RequestOptions:
    """Return the engine's less common options for a choice; the caller adds the options of log-probabilities.
    `num_tokens` is the size of the vocabulary. Raises ApiError 400 if `stop_token_ids`, `min_tokens` or `logit_bias` is
    out of range."""
    stop_ids = frozenset(body.stop_token_ids or ())
    if stop_ids and max(stop_ids) >= num_tokens:
        raise bad_request(f"stop_token_ids: the model only knows the ids 0 to {num_tokens - 1}.", "stop_token_ids")
    min_tokens = body.min_tokens or 0
    if min_tokens > max(1, max_tokens):
        raise bad_request(f"min_tokens = {min_tokens} is more than the {max_tokens} at most.", "min_tokens")
    shaping = _read_shaping(body, num_tokens, grammar)
    return RequestOptions(
        stop_ids=stop_ids,
        ignore_eos=bool(body.ignore_eos),
        min_tokens=min_tokens,
        make_shaper=None if shaping == UNSHAPED else partial(Shaper, shaping),
    )


def _read_shaping(body: Sampling, num_tokens: int, grammar: Grammar | None) -> Shaping:
    bias = body.logit_bias or {}
    for key in bias:
        if not (key.isascii() and key.isdecimal() and len(key) < 10 and int(key) < num_tokens):
            raise bad_request(
                f"logit_bias: {key[:LONGEST_NAME]!r} is not a token id from 0 to {num_tokens - 1}.",
                "logit_bias",
            )
    return Shaping(
        frequency=body.frequency_penalty or 0.0,
        presence=body.presence_penalty or 0.0,
        repetition=body.repetition_penalty or 1.0,
        bias=tuple((int(key), value) for key, value in bias.items() if value),
        grammar=grammar,
    )
