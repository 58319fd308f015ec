"""Runs the completions of one HTTP request: from its body to engine jobs, and from sampled tokens to text.

It does not depend on the formats of replies.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from slimrl.inference.sampling import ScoredToken
from slimrl.inference.scheduler import Request, RequestOptions
from slimrl.types import SamplingParams
from slimrl_serve.bodies import LONGEST_NAME, MAX_TOP, Sampling
from slimrl_serve.errors import ApiError, bad_request
from slimrl_serve.grammar import Grammar
from slimrl_serve.service import Service
from slimrl_serve.shaping import UNSHAPED, Shaper, Shaping
from slimrl_serve.text import GrowingText
from slimrl_serve.worker import Job

SEED_STEP = 0x9E3779B97F4A7C15  # between the seeds of one request's choices (the golden ratio times 2^64)
MAX_SCORES = 2**18  # log-probabilities in a reply, some 80 bytes of JSON each
COLDEST = 0.01  # logits divided by a smaller temperature may overflow; this temperature is nearly greedy

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requested settings besides the body's sampling fields; they differ from route to route."""

    max_tokens: int
    top_logprobs: int | None = None  # None for no log-probabilities, 0 for the tokens alone
    echoes: bool = False  # the prompt has log-probabilities, too
    streams: bool = False

    def num_scores(self, prompt_len: int, num_choices: int) -> int:
        """Return the maximum number of log-probabilities in a reply."""
        if self.top_logprobs is None:
            return 0
        return (num_choices * self.max_tokens + self.echoes * prompt_len) * (self.top_logprobs + 1)


@dataclass(slots=True, eq=False)
class Choice:
    """One completion. Its first `told` tokens and `shown` characters have already been sent; the next token starts at
    `offset` in the text.

    `first` is the job of the first choice with the same prompt. Only this job scores the prompt, if requested.
    """

    index: int
    job: Job
    first: Job
    text: GrowingText
    max_tokens: int
    told: int = 0
    shown: int = 0
    offset: int = 0

    @property
    def request(self) -> Request:
        """The engine's request; the job must have been submitted."""
        assert self.job.request is not None
        return self.job.request

    @property
    def token_ids(self) -> list[int]:
        """The tokens sampled so far, including a stop token."""
        if self.job.request is None:
            return []
        # The engine's thread appends meanwhile: only tokens with a version are complete.
        return self.job.request.completion_ids[: min(len(self.job.request.versions), self.max_tokens)]

    @property
    def finish_reason(self) -> str:
        """The reason why the completion stopped: "length" if no token was requested."""
        assert self.request.finish_reason is not None
        return self.request.finish_reason if self.max_tokens else "length"

    @property
    def failure(self) -> str:
        """The error in the request, such as in its grammar, that stopped the completion; an empty text without an
        error."""
        return self.job.request.failure if self.job.request is not None else ""

    @property
    def prompt_scores(self) -> list[ScoredToken]:
        """The scores of the prompt's tokens after the first."""
        assert self.first.request is not None
        return self.first.request.scored

    @property
    def prompt_is_scored(self) -> bool:
        """True if the prompt's scores are complete, or were not requested."""
        return self.first.options.prompt_logprobs < 0 or self.first.first_token_at > 0.0

    def text_so_far(self, done: bool) -> str:
        """Return the text that may be sent, without the stop token. If `done`, return the whole text."""
        token_ids = self.token_ids
        if token_ids and token_ids[-1] in self.request.stop_ids:
            token_ids = token_ids[:-1]
        # With stop strings, the engine's thread extends the text after every token, up to the last token or the stop
        # string.
        if not self.job.params.stop or (done and self.text.end < 0):
            self.text.grow(token_ids, closed=done)
        return self.text.visible(closed=done)


@dataclass(slots=True, eq=False)
class Generation:
    """The completions of one HTTP request. Call `close` at the end, to free the slots of the choices."""

    service: Service
    choices: list[Choice]
    arrived: asyncio.Event
    request_id: str
    began: float = field(default_factory=time.monotonic)
    closed: bool = False

    async def finish(self) -> None:
        """Wait for all choices."""
        async for _ in self.changes():
            pass

    async def changes(self) -> AsyncIterator[tuple[Choice, bool]]:
        """Yield each choice when it has new tokens, with a flag. The flag is True when the choice is done.

        Use this flag instead of `job.is_done`, because the engine may finish the job at any moment. Raises ApiError 500
        if the engine fails.
        """
        running = list(self.choices)
        while running:
            await self.arrived.wait()
            self.arrived.clear()
            for choice in list(running):
                done = choice.job.is_done
                if choice.job.failed:
                    raise ApiError(500, "The engine failed while it computed this request.")
                if choice.failure:
                    raise bad_request(f"The reply could not obey what it must: {choice.failure}.")
                if not choice.prompt_is_scored:
                    continue  # the first choice will wake this loop when the prompt is scored
                if done:
                    running.remove(choice)
                if done or len(choice.token_ids) > choice.told:
                    yield choice, done

    def usage(self) -> dict[str, Any]:
        """Return the token counts of the reply; a prompt counts once for all its choices."""
        scoring = [choice.request for choice in self.choices if choice.job is choice.first]
        prompt, sampled = sum(len(request.prompt) for request in scoring), sum(len(c.token_ids) for c in self.choices)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": sampled,
            "total_tokens": prompt + sampled,
            "prompt_tokens_details": {"cached_tokens": sum(request.cached for request in scoring)},
        }

    def close(self, client_left: bool) -> None:
        """Stop every choice and count its outcome; later calls do nothing."""
        if self.closed:
            return
        self.closed = True
        metrics = self.service.metrics
        for choice in self.choices:
            job = choice.job
            done = job.is_done  # read once, because the engine may finish the job at any moment
            self.service.thread.close(job)
            if job.first_token_at:
                metrics.first_token.observe(job.first_token_at - self.began)
            if job.failed:
                metrics.finished.labels("error").inc()
            elif done:
                metrics.latency.observe(job.finished_at - self.began)
                metrics.finished.labels(choice.finish_reason).inc()
            else:
                metrics.finished.labels("abort").inc()
                metrics.disconnects.inc(client_left)


async def take_turns(write: Callable[[Choice], T], choices: Sequence[Choice]) -> list[T]:
    """Return the result of `write` for each choice. Between two choices the event loop can serve other requests,
    because thousands of tokens take a while."""
    written = []
    for choice in choices:
        written.append(write(choice))
        await asyncio.sleep(0)
    return written


def start_generation(
    service: Service,
    prompts: Sequence[list[int]],
    body: Sampling,
    wanted: Sequence[Wanted],
    request_id: str,
    grammar: Grammar | None = None,
) -> Generation:
    """Queue `n` choices for each prompt, in the prompts' order. With a `grammar`, all choices follow it. Raises
    ApiError 400 for invalid settings, and 429 if the queue is full."""
    arrived = asyncio.Event()
    seed = random.getrandbits(63) if body.seed is None else body.seed
    num = body.n or 1
    service.check_room(len(prompts) * num)
    choices: list[Choice] = []
    _check_scores(service, prompts, num, wanted)
    for prompt, want in zip(prompts, wanted, strict=True):
        options = _options(service, body, want, grammar)
        first: Job | None = None
        for _ in range(num):
            # Every choice has its own seed: the choices of a prompt differ, and repeat with the request's seed.
            params = _params(body, want, (seed + len(choices) * SEED_STEP) % 2**64)
            decode = partial(service.model.vocabulary.decode, skip_special=body.skip_special_tokens is not False)
            text = GrowingText(decode, params.stop, bool(body.include_stop_str_in_output), options.min_tokens)
            job = Job(prompt, params, options, streams=want.streams, arrived=arrived)
            # Without stop strings the text is not decoded after each token, but only when a reply needs it.
            if params.stop:
                job.finished = text.is_finished
            first = first or job
            choices.append(Choice(len(choices), job, first, text, want.max_tokens))
            # One choice scores the prompt; the others find it in the cache.
            options = replace(options, prompt_logprobs=-1)
    for choice in choices:
        service.thread.submit(choice.job)
    return Generation(service, choices, arrived, request_id)


def _check_scores(service: Service, prompts: Sequence[list[int]], num: int, wanted: Sequence[Wanted]) -> None:
    """Raise ApiError 400 for more log-probabilities than a reply may have. The tokens of one context are always
    allowed."""
    asked = sum(want.num_scores(len(prompt), num) for prompt, want in zip(prompts, wanted, strict=True))
    most = max(MAX_SCORES, service.config.context_len * (MAX_TOP + 1))
    if asked > most:
        raise bad_request(
            f"The reply could have {asked} log-probabilities, and a reply has at most {most}. Ask for fewer "
            "completions, tokens (max_tokens) or top_logprobs, or send several requests.",
            "logprobs",
        )


def _params(body: Sampling, wanted: Wanted, seed: int) -> SamplingParams:
    temperature = 1.0 if body.temperature is None else body.temperature
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or []
    return SamplingParams(
        max_tokens=max(1, wanted.max_tokens),  # the engine samples at least one token; the reply then omits it
        temperature=max(temperature, COLDEST) if temperature else 0.0,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(0, body.top_k or 0),
        min_p=body.min_p or 0.0,
        stop=tuple(stop) if wanted.max_tokens else (),
        seed=seed,
    )


def _options(service: Service, body: Sampling, wanted: Wanted, grammar: Grammar | None) -> RequestOptions:
    num_tokens = service.model.vocabulary.num_tokens
    stop_ids = frozenset(body.stop_token_ids or ())
    if stop_ids and max(stop_ids) >= num_tokens:
        raise bad_request(f"stop_token_ids: the model only knows the ids 0 to {num_tokens - 1}.", "stop_token_ids")
    min_tokens = body.min_tokens or 0
    if min_tokens > max(1, wanted.max_tokens):
        raise bad_request(f"min_tokens = {min_tokens} is more than the {wanted.max_tokens} at most.", "min_tokens")
    shaping = _read_shaping(body, num_tokens, grammar)
    assert grammar is None or not (min_tokens or body.ignore_eos), body  # refused before
    return RequestOptions(
        stop_ids=stop_ids,
        ignore_eos=bool(body.ignore_eos),
        min_tokens=min_tokens,
        top_logprobs=wanted.top_logprobs or 0,
        prompt_logprobs=wanted.top_logprobs if wanted.echoes and wanted.top_logprobs is not None else -1,
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
