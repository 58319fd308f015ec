"""Samples the choices of a request, and sends the reply: as one JSON object, or as server-sent events.

In both cases the reply is closed at the end. If the client leaves, the sampling is cancelled.
"""

import asyncio
import json
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from slimrl_serve.bodies import Generation, Sampling
from slimrl_serve.errors import BUG, ApiError, error_body
from slimrl_serve.generation import Choice, check_scores, request_options, sampling_params
from slimrl_serve.http.guard import run_unless_gone
from slimrl_serve.service import Service
from slimrl_serve.text import GrowingText, TokenNames

LOG = logging.getLogger(__name__)
SEED_STEP = 0x9E3779B97F4A7C15  # difference between the seeds of one request's choices (golden ratio times 2^64)
Plain = dict[str, Any]
B = TypeVar("B", bound=Sampling)
G = TypeVar("G", bound=Generation)


@dataclass(eq=False)
class Reply(ABC, Generic[B]):
    """The reply to one request. It has `n` choices for each prompt, in the prompts' order. Creating the reply queues
    its choices. Call `close` at the end to free their slots. Raises ApiError 400 for invalid settings, and 429 if the
    queue is full.

    `top_logprobs` is None for no log-probabilities, and 0 for log-probabilities of the sampled tokens only.
    """

    service: Service
    body: B
    request_id: str
    prompts: Sequence[list[int]]
    max_tokens: Sequence[int]  # for each prompt
    top_logprobs: int | None = None

    def __post_init__(self) -> None:
        self.arrived = asyncio.Event()
        self.choices = self._make_choices(self.body.n or 1)
        for choice in self.choices:
            self.service.thread.submit(choice)

    @property
    def echoes(self) -> bool:
        """True if the reply repeats the prompts, together with their log-probabilities if these are requested."""
        return False

    @property
    def streams(self) -> bool:
        """True if the reply is a stream."""
        return False

    def _make_choices(self, num: int) -> list[Choice]:
        vocabulary, body, top, scores = self.service.vocabulary, self.body, self.top_logprobs, self.echoes
        self.service.check_room(len(self.prompts) * num)
        if top is not None:
            num_scored = num * sum(self.max_tokens) + scores * sum(map(len, self.prompts))
            check_scores(self.service, num_scored * (top + 1))
        seed = random.getrandbits(63) if body.seed is None else body.seed
        decode = partial(vocabulary.decode, skip_special=body.skip_special_tokens is not False)
        options = request_options(body, vocabulary.num_tokens)
        asked = replace(options, top_logprobs=top or 0, prompt_logprobs=top if scores and top is not None else -1)
        choices: list[Choice] = []
        for prompt, most in zip(self.prompts, self.max_tokens, strict=True):
            for _ in range(num):
                # Every choice has its own seed, so the choices of a prompt differ. The request's seed reproduces all of
                # them.
                params = sampling_params(body, most, (seed + len(choices) * SEED_STEP) % 2**64)
                text = GrowingText(decode, params.stop, bool(body.include_stop_str_in_output))
                choice = Choice(prompt, params, asked, index=len(choices), text=text)
                choice.streams, choice.arrived = self.streams, self.arrived
                # Without stop strings the text is not decoded after each token, but only when a reply needs it.
                if params.stop:
                    choice.finished = text.is_finished
                choices.append(choice)
        return choices

    @abstractmethod
    def whole_choice(self, choice: Choice) -> Plain:
        """Return a finished choice in the format of the reply."""

    @abstractmethod
    async def whole(self) -> Plain:
        """Return the whole reply."""

    async def all_choices(self) -> list[Plain]:
        """Wait for all choices, and return them."""
        async for _ in self.changes():
            pass
        written = []
        for choice in self.choices:
            written.append(self.whole_choice(choice))
            await asyncio.sleep(0)  # serve other requests in between, because thousands of tokens take a while
        return written

    async def changes(self) -> AsyncIterator[tuple[Choice, bool]]:
        """Yield each choice when it has new tokens, with a flag. The flag is True when the choice is done.

        Use this flag instead of `is_done`, because the engine may finish the choice at any moment. Raises ApiError 500
        if the engine fails.
        """
        running = list(self.choices)
        while running:
            await self.arrived.wait()
            self.arrived.clear()
            for choice in list(running):
                done = choice.is_done
                if choice.failed:
                    raise ApiError(500, "The engine failed while it computed this request.")
                if done:
                    running.remove(choice)
                if done or len(choice.token_ids) > choice.num_sent:
                    yield choice, done

    def close(self) -> None:
        """Stop every choice; later calls do nothing."""
        for choice in self.choices:
            self.service.thread.close(choice)


@dataclass(eq=False)
class TextReply(Reply[G]):
    """The reply of Chat Completions or Completions, which may be a stream."""

    KINDS: ClassVar[tuple[str, str]]  # the field `object` of a whole reply, and of a piece
    created: int = field(default_factory=lambda: int(time.time()), kw_only=True)

    @property
    def streams(self) -> bool:
        """True if the reply is a stream."""
        return bool(self.body.stream)

    def first_pieces(self) -> Iterator[Plain]:
        """Yield the pieces to send before the first token."""
        yield from ()

    @abstractmethod
    def pieces(self, choice: Choice, text: str, tokens: tuple[int, int], done: bool) -> Iterator[Plain]:
        """Yield the new pieces of a choice. `text` is its text so far, and `tokens` are the start and end of its new
        tokens."""

    async def whole(self) -> Plain:
        """Return the whole reply."""
        choices = await self.all_choices()
        return self._head(0) | {"choices": choices} | self._prompt() | {"usage": self._usage()}

    async def chunks(self) -> AsyncIterator[Plain]:
        """Yield the reply in pieces, and the token counts if requested."""
        for piece in self.first_pieces():
            yield self._head(1) | {"choices": [piece]} | self._prompt()
        async for choice, done in self.changes():
            # The number of tokens is read once: the engine's thread may append more while this piece is written. Text
            # may lag behind the tokens, because incomplete characters and stop strings are held back.
            text, end = choice.text_so_far(done), len(choice.token_ids)
            for piece in self.pieces(choice, text, (choice.num_sent, end), done):
                yield self._head(1) | {"choices": [piece]}
            choice.num_sent, choice.shown = end, len(text)
        if self.body.stream_options and self.body.stream_options.include_usage:
            yield self._head(1) | {"choices": [], "usage": self._usage()}

    @property
    def names(self) -> TokenNames:
        """An object that writes tokens as text or as ids."""
        return TokenNames(self.service.vocabulary, bool(self.body.return_tokens_as_token_ids))

    def token_ids(self, choice: Choice, start: int, end: int) -> Plain:
        """Return the sampled tokens `start..end` and their weight versions, if requested."""
        if not self.body.return_token_ids:
            return {}
        versions = choice.sequence.versions[start:end]
        return {"token_ids": choice.token_ids[start:end], "token_versions": versions}

    def _head(self, kind: int) -> Plain:
        model = self.service.name
        return {"id": self.request_id, "object": self.KINDS[kind], "created": self.created, "model": model}

    def _prompt(self) -> Plain:
        one = self.body.return_token_ids and len(self.prompts) == 1
        return {"prompt_token_ids": self.prompts[0]} if one else {}

    def _usage(self) -> Plain:
        prompt, sampled = sum(map(len, self.prompts)), sum(len(choice.token_ids) for choice in self.choices)
        cached = sum(choice.sequence.cached for choice in self.choices[:: self.body.n or 1])
        return {
            "prompt_tokens": prompt,
            "completion_tokens": sampled,
            "total_tokens": prompt + sampled,
            "prompt_tokens_details": {"cached_tokens": cached},
        }


class EventStream(StreamingResponse):
    """A reply as server-sent events. The reply is closed even if nothing was sent."""

    def __init__(self, reply: TextReply[Any]) -> None:
        super().__init__(self._lines(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._reply = reply

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reply.close()

    async def _lines(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._reply.chunks():
                yield _event(chunk)
        except ApiError as error:
            yield _event(error_body(error))
        except Exception:  # the status was sent before, so only an event can report the error
            LOG.exception("a stream failed")
            yield _event(error_body(ApiError(500, BUG)))
        yield b"data: [DONE]\n\n"


def _event(chunk: Plain) -> bytes:
    # ASCII, because many clients also end a line at U+0085 or U+2028.
    return f"data: {json.dumps(chunk, separators=(',', ':'))}\n\n".encode()


async def answer(request: Request, reply: Reply[Any]) -> Response:
    """Return the HTTP response with a reply. It is a stream of events if the request asks for a stream."""
    if isinstance(reply, TextReply) and reply.streams:
        # The status line is sent before the first token, so later errors are sent as events.
        return EventStream(reply)
    try:
        return JSONResponse(await run_unless_gone(reply.whole(), request.receive))
    finally:
        reply.close()
