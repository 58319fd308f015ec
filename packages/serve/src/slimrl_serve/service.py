"""Holds the served model and the shared parts of all routes: checks of names, prompts and the queue, and tokenization.

OpenAI's formats are in `chat.py` and `completions.py`.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Request

from slimrl.config.serve import ServeConfig
from slimrl.errors import UserError
from slimrl.inference.engine import Engine
from slimrl.models.load import Policy, date_of, load_policy
from slimrl_serve.bodies import LONGEST_NAME
from slimrl_serve.conversation import PromptWriter
from slimrl_serve.errors import ApiError, bad_request, too_long
from slimrl_serve.text import Vocabulary
from slimrl_serve.worker import EngineThread

LONG_TEXT = 20_000  # characters; a text of this length or more is encoded in a thread, off the event loop
RETRY_AFTER_S = 1
NOT_GIVEN = -1  # the version of the initial weights; no run uses it


class Service:
    """The served model and its helpers: the policy, the vocabulary (text to token ids and back), and the writer of
    prompts. The model is loaded on the engine's thread. Until it is loaded, routes answer 503."""

    policy: Policy
    vocabulary: Vocabulary
    writer: PromptWriter

    def __init__(self, config: ServeConfig) -> None:
        self.config = config
        self.name = config.served_model_name or config.model.name
        self.created = int(time.time())
        self.thread = EngineThread(self._load)

    def _load(self) -> Engine:
        """Load the model and return its engine. Raises UserError if `context_len` is too long for the model, or the
        memory is too small to sample."""
        config = self.config
        self.policy = policy = load_policy(config.model)
        module: Any = policy.module
        longest = module.config.max_position_embeddings
        if config.context_len > longest:
            raise UserError(
                f"context_len = {config.context_len} is more than the {longest} positions that {policy.source} was "
                f"made for. Set --context_len to {longest} or less."
            )
        self.vocabulary = Vocabulary(policy.tokenizer, module.get_input_embeddings().num_embeddings, policy.chat.marks)
        self.writer = PromptWriter(policy.tokenizer, date_of(config.model))
        stop_ids = policy.chat.stop_ids
        engine = Engine(policy.module, stop_ids, config.max_slots, config.context_len)
        try:
            engine.reserve()
        except (RuntimeError, MemoryError) as error:  # PyTorch's errors for a lack of memory, on any device
            raise UserError(
                f"The model is loaded but cannot sample: {error}. If memory is short, set a smaller --max_slots "
                f"(max_slots = {config.max_slots}) or --context_len (context_len = {config.context_len}): each slot "
                "has a key-value cache of context_len tokens."
            ) from error
        engine.version = NOT_GIVEN
        return engine

    def check_ready(self) -> None:
        """Raise ApiError 503 while the model is loading, and after its engine has stopped."""
        loaded = self.thread.loaded
        if self.thread.ended:
            raise ApiError(503, "The engine has ended; the server's log says why, and it must be started again.")
        if not loaded.done() or loaded.exception():
            raise ApiError(503, "The model is still being loaded.", headers={"Retry-After": str(RETRY_AFTER_S)})

    @property
    def engine(self) -> Engine:
        """The engine. Use this property only to read the engine's version and counters; any thread may read them."""
        return self.thread.loaded.result(timeout=0)

    def version_name(self, version: int) -> str:
        """Return the name of a weight version in vLLM's routes: its number, or `default` for the initial weights."""
        return "default" if version == NOT_GIVEN else str(version)

    def card(self) -> dict[str, Any]:
        """Describe the served model for OpenAI's clients."""
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "slimrl",
            "root": self.name,
            "parent": None,
            "max_model_len": self.config.context_len,
        }

    def check_model(self, name: str | None) -> None:
        """Raise ApiError 404 if `name` is not the served model's name; None is accepted."""
        if name is not None and name != self.name:
            why = f"The model `{name[:LONGEST_NAME]}` does not exist. This server has `{self.name}`."
            raise ApiError(404, why, param="model", code="model_not_found")

    async def encode_prompt(self, text: str, add_special: bool) -> list[int]:
        """Return the token ids of a prompt. Raises ApiError 400 for a prompt that cannot fit, before tokenizing it."""
        # No token covers more characters than the longest token, so the prompt has at least this many tokens.
        fewest = len(text) // self.vocabulary.longest_token
        if fewest > self.config.context_len:
            raise too_long(self.config.context_len, f"your prompt has more than {fewest} tokens")
        return await self.encode(text, add_special)

    async def encode(self, text: str, add_special: bool) -> list[int]:
        """Return the token ids of a text."""
        # With a thread the event loop can continue meanwhile; for a short text the thread costs more than encoding.
        if len(text) < LONG_TEXT:
            return self.vocabulary.encode(text, add_special)
        return await asyncio.to_thread(self.vocabulary.encode, text, add_special)

    def check_prompt(self, token_ids: Sequence[int], max_tokens: int | None) -> int:
        """Return the maximum number of tokens to sample. Raises ApiError 400 if prompt or `max_tokens` do not fit."""
        room, context_len = self.room_behind(token_ids), self.config.context_len
        if max_tokens is not None and max_tokens > room:
            raise too_long(
                context_len,
                f"you requested {len(token_ids) + max_tokens} tokens ({len(token_ids)} in the prompt, {max_tokens} in "
                "the completion)",
            )
        return room if max_tokens is None else max_tokens

    def room_behind(self, token_ids: Sequence[int]) -> int:
        """Return the number of tokens that fit after a prompt. Raises ApiError 400 if the prompt does not fit."""
        context_len, num_tokens = self.config.context_len, self.vocabulary.num_tokens
        if not token_ids:
            raise bad_request("The prompt has no tokens; it needs at least one.", "prompt")
        if (highest := max(token_ids)) >= num_tokens:
            raise bad_request(f"The prompt has the token id {highest}, but the model only knows 0 to {num_tokens - 1}.")
        room = context_len - len(token_ids)
        if room < 1:
            raise too_long(context_len, f"your prompt has {len(token_ids)} tokens, and one must be left to sample")
        return room

    def check_room(self, num_requests: int) -> None:
        """Raise ApiError 429 if the queue is full, and 400 for more requests than the queue could ever hold."""
        # Running and waiting requests together: `num_open` counts both.
        most = self.config.max_slots + self.config.max_queue
        if num_requests > most:
            raise bad_request(
                f"This asks for {num_requests} completions at once; the server holds {most}, running and waiting."
            )
        if self.thread.num_open + num_requests > most:
            raise ApiError(
                429,
                f"The queue is full: {self.thread.num_open} completions are running or waiting, of at most {most}.",
                code="queue_full",
                headers={"Retry-After": str(RETRY_AFTER_S)},
            )


def ready_service(request: Request) -> Service:
    """Return the service of a request's app. Raises ApiError 503 as `check_ready` does."""
    service: Service = request.app.state.service
    service.check_ready()
    return service


Served = Annotated[Service, Depends(ready_service)]
