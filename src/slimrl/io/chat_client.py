"""One request to a chat server with OpenAI's HTTP protocol, and its reply. Knows nothing of what is asked, or why.

Whatever a server does becomes a reply or an error, and an error says whether another try may help: `TryAgain` if so,
`RolloutError` if not. An error never counts as an answer.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from slimrl.errors import RolloutError, UserError
from slimrl.io.http import (
    BUSY,
    PASSING,
    check_address,
    http_client,
    import_httpx,
    read_api_key,
    redact_key,
    retry_after_s,
)
from slimrl.io.urls import is_http_url, is_variable_name
from slimrl.types import Message

MAX_REPLY_BYTES = 1 << 20
# The fields of a request that the client sets itself, so that `extra` may not contain them.
OWN_FIELDS = ("model", "messages", "max_tokens", "temperature", "seed", "stream")
TEXT_PARTS = ("text", "output_text")  # the types of parts of a message that are its text
REFUSED = (400, 422)
SWITCH_S = 120.0  # limit for sleeping and waking: vLLM copies its weights to the memory of the CPU and back


@dataclass(frozen=True, slots=True)
class ChatServer:
    """The address of a chat server and how it is asked; a subclass says what it is asked for.

    `timeout_s` limits one answer, with all its tries and the wait for one of `num_concurrent` places. It must be below
    the run's `episode_timeout_s` (60 by default), or the episode ends first and is counted as `drop/timeout`. A reply
    that cannot be used is asked for again, `max_tries` times in all; a server that is busy or unreachable is asked
    until `timeout_s`. After `max_failures` failures in a row the run stops.

    A key is read from the environment variable `api_key_variable`, and is in no file. `extra` goes into the body of
    each request, as in `{chat_template_kwargs = {enable_thinking = false}}`. With `sleeps` a vLLM server that was
    started with `--sleep` frees its memory while the policy trains.
    """

    who: ClassVar[str] = "server"  # the noun in messages, and the prefix of the reasons of failures
    gives: ClassVar[str] = "reply"  # what messages call its answer
    advice: ClassVar[str] = ""  # what to do if it cannot be asked

    base_url: str
    model: str
    api_key_variable: str
    timeout_s: float = 50.0
    max_tries: int = 3
    max_failures: int = 32
    num_concurrent: int = 16
    max_tokens: int = 512
    sleeps: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_address(self.base_url, self.who)
        if not is_http_url(self.base_url):
            raise UserError(f"{self.who}: `base_url` must be as http://localhost:8081/v1, not {self.base_url!r}.")
        if not is_variable_name(self.api_key_variable):
            raise UserError(  # what stands there may be the key: it is not repeated
                f"{self.who}: `api_key_variable` is no name of a variable. It names the variable of the environment in "
                "which the key is, such as OPENAI_API_KEY; a key itself belongs in no file and on no command line."
            )
        for name, value in (
            ("timeout_s", self.timeout_s),
            ("max_tries", self.max_tries),
            ("max_failures", self.max_failures),
            ("num_concurrent", self.num_concurrent),
            ("max_tokens", self.max_tokens),
        ):
            if not value > 0:  # nan is not
                raise UserError(f"{self.who}: `{name}` must be more than 0, not {value}.")
        if own := [name for name in OWN_FIELDS if name in self.extra]:
            raise UserError(
                f"{self.who}: `{own[0]}` in `extra` has no effect or the wrong one: the {self.who} sets it itself."
            )
        try:
            json.dumps(self.extra, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UserError(f"{self.who}: `extra` cannot be sent as JSON: {error}.") from error

    @property
    def root(self) -> str:
        """The address of the server without its `/v1`."""
        return self.base_url.rstrip("/").removesuffix("/v1")

    def body(self, messages: Sequence[Message]) -> dict[str, Any]:
        """The body of a request, without the fields that say how tokens are sampled."""
        return {"model": self.model, "messages": list(messages), "max_tokens": self.max_tokens, **self.extra}


@dataclass(frozen=True, slots=True)
class Reply:
    """The text of a reply, and the tokens of prompt and completion that the server counted; 0 if it does not tell."""

    text: str
    num_tokens: int


class RequestRefused(RolloutError):
    """The server does not accept the request as it is, status 400 or 422: another one may do."""


class TryAgain(Exception):
    """One try failed, and another may succeed.

    `wait_s` is how long the server asks to wait, 0 if it does not. `counts` is false if the failure says nothing about
    the request itself, as when the server is busy or unreachable. `at_once` is true if waiting would not help.
    """

    def __init__(self, failure: RolloutError, counts: bool, wait_s: float = 0.0, at_once: bool = False) -> None:
        super().__init__(str(failure))
        self.failure, self.counts, self.wait_s, self.at_once = failure, counts, wait_s, at_once


class ChatConnection:
    """The HTTP connection to a chat server. All calls must come from one event loop."""

    def __init__(self, server: ChatServer) -> None:
        self._server, self._httpx = server, import_httpx(f"an LLM {server.who}")
        self._key = read_api_key(server.api_key_variable)
        self._client = http_client(self._httpx, server.who, server.base_url, self._key, server.num_concurrent)
        self._awake, self._waking = not server.sleeps, asyncio.Lock()

    async def reply(self, body: Mapping[str, Any]) -> Reply:
        """A chat completion for the request. Raises TryAgain, or RolloutError if another try is of no use."""
        await self._wake_up()
        data = await self._post(f"{self._server.base_url.rstrip('/')}/chat/completions", body)
        try:
            whole = json.loads(data.decode("utf-8-sig"))
            choice, usage = whole["choices"][0], whole.get("usage")
            message, reason = choice["message"], choice.get("finish_reason")
            text, refusal = _read_content(message["content"], message.get("refusal"))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:  # nested too deeply
            found = data[:200].decode("utf-8", "replace")
            raise TryAgain(self._failure(f"gave no chat completion, but {found!r}"), counts=True) from error
        if refusal or reason == "content_filter":
            raise TryAgain(self._failure(f"refused: {refusal or text!r:.200}", "refused"), counts=True)
        if isinstance(text, str) and (text.strip() or reason != "length"):
            return Reply(text, _total(usage))
        hint = f"; it was cut off at `max_tokens` = {self._server.max_tokens}" if reason == "length" else ""
        raise TryAgain(self._failure(f"gave a completion without text: {text!r:.200}{hint}"), counts=True)

    async def offload(self) -> None:
        """Asks the server to free its memory. Raises UserError if it refuses; an unreachable server is ignored, because
        the next request will report it."""
        if self._server.sleeps and self._awake:
            self._awake = False
            with suppress(TryAgain):
                await self._switch("sleep?level=1")

    async def close(self) -> None:
        """Closes the connection."""
        await self._client.aclose()

    async def _wake_up(self) -> None:
        if self._awake:
            return
        async with self._waking:  # many requests may come at once, and one call is enough to wake the server
            if not self._awake:
                await self._switch("wake_up")
                self._awake = True

    async def _switch(self, route: str) -> None:
        """Calls one of vLLM's routes for sleeping. Raises TryAgain if the server is unreachable, UserError if it
        refuses."""
        try:
            async with asyncio.timeout(SWITCH_S):
                await self._post(f"{self._server.root}/{route}", {})
        except TryAgain as again:
            if again.failure.reason == self._reason("unreachable"):
                raise
            raise self._cannot_sleep(route, str(again.failure)) from again
        except (RolloutError, TimeoutError) as error:
            raise self._cannot_sleep(route, str(error) or f"no reply within {SWITCH_S:g} s") from error

    def _cannot_sleep(self, route: str, why: str) -> UserError:
        return UserError(
            f"the {self._server.who} refused POST /{route}, which the setting `sleeps` needs ({why}). Start it with "
            "`uv run python scripts/run_vllm.py --sleep`, or remove `sleeps`."
        )

    async def _post(self, url: str, body: Mapping[str, Any]) -> bytes:
        """The body of a reply with status 200. Raises TryAgain or RolloutError for anything else."""
        try:
            async with self._client.stream("POST", url, json=body) as response:
                data = await self._read(response)
        except self._httpx.DecodingError as error:
            raise TryAgain(self._failure(f"gave a reply that is not read: {error}"), counts=True) from error
        except (self._httpx.HTTPError, self._httpx.InvalidURL, self._httpx.StreamError) as error:
            failure = RolloutError(self._reason("unreachable"), f"{url}: {error or type(error).__name__}")
            raise TryAgain(failure, counts=False) from error
        status = response.status_code
        if status == 200:
            return data
        text = data[:300].decode("utf-8", "replace")
        reason = self._reason("busy" if status in BUSY else "error")
        failure = RolloutError(reason, f"{url} answered {status}: {text}")
        if status in BUSY or status in PASSING:
            raise TryAgain(failure, status not in BUSY, retry_after_s(response.headers))
        raise RequestRefused(failure.reason, failure.detail) if status in REFUSED else failure

    async def _read(self, response: Any) -> bytes:
        """The body of a response without the API key. Raises TryAgain when it is longer than MAX_REPLY_BYTES."""
        # The body is streamed, so that a server that never stops writing cannot fill the memory.
        parts, size = [], 0
        async for part in response.aiter_bytes():
            parts.append(part)
            size += len(part)
            if size > MAX_REPLY_BYTES:
                raise TryAgain(self._failure(f"gave a reply of more than {MAX_REPLY_BYTES:,} bytes"), counts=True)
        return redact_key(b"".join(parts), self._key)

    def _failure(self, what: str, kind: str = "error") -> RolloutError:
        return RolloutError(self._reason(kind), f"{self._server.base_url} {what}")

    def _reason(self, kind: str) -> str:
        return f"{self._server.who}_{kind}"


def _read_content(content: Any, refusal: Any) -> tuple[Any, Any]:
    """The text of a message and its refusal. A list of parts has these in parts of their own, beside others, as of
    thoughts, which are no part of the answer; a list without any text stays as it is."""
    if not isinstance(content, list):
        return content, refusal
    parts = [part for part in content if isinstance(part, dict)]
    texts = [part["text"] for part in parts if part.get("type", "text") in TEXT_PARTS]
    refusals = [part["refusal"] for part in parts if part.get("type") == "refusal"]
    return "".join(texts) if texts else content, refusal or "".join(refusals)


def _total(usage: Any) -> int:
    total = usage.get("total_tokens") if isinstance(usage, dict) else 0
    return max(0, total) if isinstance(total, int) else 0
