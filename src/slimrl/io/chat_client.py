"""A client of chat servers with OpenAI's HTTP protocol.

A request is repeated after a temporary failure. A permanent failure raises a `RolloutError`. The error's reason starts
with the kind of server, as in `judge_busy`. After many failures in a row, the run stops.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from pydantic import PositiveFloat, PositiveInt

from slimrl.errors import RolloutError, UserError
from slimrl.io.http import PASSING, HttpClient, HttpError, Limits, Peer, ask_again
from slimrl.io.loop_thread import LoopTasks
from slimrl.io.secrets import check_address, read_api_key
from slimrl.io.urls import is_http_url, is_variable_name
from slimrl.types import Message

MAX_REPLY_BYTES = 1 << 20
# The fields of a request that the client sets, so `extra` must not contain them.
OWN_FIELDS = ("model", "messages", "max_tokens", "temperature", "seed", "stream")
TEXT_PARTS = ("text", "output_text")  # types of message parts that hold its text
SWITCH_S = 120.0  # time limit of vLLM's sleep and wake-up, which copy the weights to the CPU's memory and back

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChatServer:
    """The address of a chat server and the parameters of requests. Subclasses define the server's purpose.

    `timeout_s` limits the time of one answer, including all tries and the wait for one of the `num_concurrent`
    connections. It must be below the run's `episode_timeout_s` (60 by default). Otherwise the episode times out first
    and is counted as `drop/timeout`. After an unusable reply, the request is repeated, up to `max_tries` tries in
    total. A request to a busy or unreachable server is repeated until `timeout_s`. After `max_failures` failures in a
    row the run stops.

    The API key is read from the environment variable `api_key_variable`. `extra` is added to the body of each request,
    for example `{chat_template_kwargs = {enable_thinking = false}}`. With `sleeps`, a vLLM server that was started by
    `scripts/run_vllm.py --sleep` frees its memory while the policy trains.
    """

    who: ClassVar[str] = "server"  # the noun in messages, and the prefix of the reasons of failures
    gives: ClassVar[str] = "reply"  # the noun for an answer in messages
    advice: ClassVar[str] = ""  # the remedy if requests fail

    base_url: str
    model: str
    api_key_variable: str
    timeout_s: PositiveFloat = 50.0
    max_tries: PositiveInt = 3
    max_failures: PositiveInt = 32
    num_concurrent: PositiveInt = 16
    max_tokens: PositiveInt = 512
    sleeps: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_address(self.base_url, self.who)
        if not is_http_url(self.base_url):
            raise UserError(f"{self.who}: `base_url` must be as http://localhost:8081/v1, not {self.base_url!r}.")
        if not is_variable_name(self.api_key_variable):
            raise UserError(  # the value may be the key, so the message does not show it
                f"{self.who}: `api_key_variable` is no name of a variable. It names the variable of the environment in "
                "which the key is, such as OPENAI_API_KEY; a key itself belongs in no file and on no command line."
            )
        if own := [name for name in OWN_FIELDS if name in self.extra]:
            raise UserError(
                f"{self.who}: `{own[0]}` in `extra` has no effect or the wrong one: the {self.who} sets it itself."
            )
        try:
            json.dumps(self.extra, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UserError(f"{self.who}: `extra` cannot be sent as JSON: {error}.") from error

    def body(self, messages: Sequence[Message]) -> dict[str, Any]:
        """Return the body of a request, without the sampling parameters."""
        return {"model": self.model, "messages": list(messages), "max_tokens": self.max_tokens, **self.extra}


@dataclass(frozen=True, slots=True)
class Reply:
    """The text of a reply, and the total number of prompt and completion tokens; 0 if the server reports no number."""

    text: str
    num_tokens: int


class ChatClient:
    """A client of one chat server, which counts the failures in a row. `ask` may be awaited from any event loop. The
    connections, and the function that is passed to `ask`, always run in `PROCESS_LOOP`."""

    def __init__(self, server: ChatServer) -> None:
        self._server = server
        self._url = f"{server.base_url.rstrip('/')}/chat/completions"
        self._peer = Peer(server.who, server.base_url, read_api_key(server.api_key_variable))
        self._client = HttpClient(self._peer, server.num_concurrent, MAX_REPLY_BYTES)
        self._tasks = LoopTasks(self._client.aclose)
        self._awake, self._waking = not server.sleeps, asyncio.Lock()
        self._failures: list[str] = []  # since the last usable reply

    async def ask(self, attempt: Callable[[Sequence[HttpError]], Awaitable[T]]) -> T:
        """Call `attempt` until a call succeeds, each time with the failures so far. Return the result.

        Raise RolloutError if no try is left. Raise UserError after `max_failures` RolloutErrors in a row.
        """
        return await self._tasks.run(self._ask(attempt))

    async def _ask(self, attempt: Callable[[Sequence[HttpError]], Awaitable[T]]) -> T:
        self._stop_after_many_failures()
        server = self._server
        limits = Limits(server.timeout_s, max_tries=server.max_tries, passing=PASSING | {200})
        try:
            usable = await ask_again(self._peer, attempt, limits)
        except HttpError as error:
            failure = RolloutError(f"{server.who}_{error.kind}", f"{error.url} {error.said}")
            self._failures.append(str(failure))
            self._stop_after_many_failures()
            raise failure from error
        self._failures.clear()
        return usable

    async def reply(self, body: Mapping[str, Any]) -> Reply:
        """Send the request `body` once, and return the chat completion. Raise HttpError on failure."""
        await self._wake_up()
        whole = await self._client.send("POST", self._url, body)
        try:
            choice, usage = whole["choices"][0], whole.get("usage")
            message, reason = choice["message"], choice.get("finish_reason")
            text, refusal = _read_content(message["content"], message.get("refusal"))
        except (LookupError, TypeError, AttributeError) as error:
            raise self.unusable(f"gave no chat completion, but {whole!r:.200}") from error
        if refusal or reason == "content_filter":
            raise self.unusable(f"refused: {refusal or text!r:.200}", "refused")
        if isinstance(text, str) and (text.strip() or reason != "length"):
            return Reply(text, _total(usage))
        hint = f"; it was cut off at `max_tokens` = {self._server.max_tokens}" if reason == "length" else ""
        raise self.unusable(f"gave a completion without text: {text!r:.200}{hint}")

    def unusable(self, said: str, kind: str = "error") -> HttpError:
        """Return the error for an unusable reply, described by `said`. The request may be repeated after this error."""
        return HttpError(self._peer, self._url, said, kind, status=200)

    def check(self, body: Mapping[str, Any]) -> None:
        """Send a request to test the server before the run starts. Wait while the server reports that it is busy,
        because it may be loading its model. Raise UserError if there is no reply within `timeout_s`."""
        server = self._server
        try:
            limits = Limits(server.timeout_s, patience_s=0.0)
            self._tasks.wait(ask_again(self._peer, lambda _: self.reply(body), limits))
        except HttpError as error:
            raise UserError(
                f"the {server.who} {server.model} at {server.base_url} cannot be asked: {server.who}_{error.kind}: "
                f"it {error.said}. {server.advice}; a key goes into the variable {server.api_key_variable}."
            ) from error

    def offload(self) -> None:
        """With `sleeps`, ask the server to free its memory until the next request. Raise UserError if the server
        refuses. Ignore an unreachable server, because the next request will report the error."""
        if self._server.sleeps and self._awake:
            self._awake = False
            with suppress(HttpError):
                self._tasks.wait(self._switch("sleep?level=1"))

    def close(self) -> None:
        """Cancel open requests, and close the connections."""
        self._tasks.close()

    async def _wake_up(self) -> None:
        if self._awake:
            return
        async with self._waking:  # many requests may arrive at once, and one call is enough to wake the server
            if not self._awake:
                await self._switch("wake_up")
                self._awake = True

    async def _switch(self, route: str) -> None:
        """Call vLLM's `sleep` or `wake_up`. Raise HttpError if the server is unreachable, UserError if it refuses."""
        root = self._server.base_url.rstrip("/").removesuffix("/v1")
        url, limits = f"{root}/{route}", Limits(SWITCH_S, "SWITCH_S", patience_s=0.0)
        try:
            await ask_again(self._peer, lambda _: self._client.send("POST", url, {}), limits)
        except HttpError as error:
            if error.kind == "unreachable":
                raise
            raise UserError(
                f"the {self._server.who} refused POST /{route}, which the setting `sleeps` needs: it {error.said}. "
                "Start it with `uv run python scripts/run_vllm.py --sleep`, or remove `sleeps`."
            ) from error

    def _stop_after_many_failures(self) -> None:
        if len(self._failures) >= self._server.max_failures:
            server = self._server
            raise UserError(
                f"the {server.who} {server.model} at {server.base_url} gave no {server.gives} {len(self._failures)} "
                f"times in a row, the last time: {self._failures[-1]}. {server.advice}, and continue with `--resume`."
            )


def _read_content(content: Any, refusal: Any) -> tuple[Any, Any]:
    """Return the text and the refusal of a message. If `content` is a list, join its text parts to the text and its
    refusal parts to the refusal. Ignore other parts, such as thoughts. If there is no text, return the list itself."""
    if not isinstance(content, list):
        return content, refusal
    parts = [part for part in content if isinstance(part, dict)]
    texts = [part["text"] for part in parts if part.get("type", "text") in TEXT_PARTS]
    refusals = [part["refusal"] for part in parts if part.get("type") == "refusal"]
    return "".join(texts) if texts else content, refusal or "".join(refusals)


def _total(usage: Any) -> int:
    total = usage.get("total_tokens") if isinstance(usage, dict) else 0
    return max(0, total) if isinstance(total, int) else 0
