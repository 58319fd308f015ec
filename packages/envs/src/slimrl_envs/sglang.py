"""A client of SGLang's router over plain HTTP. It sends token ids, and receives token ids with their log-probabilities.
No text is sent or read, so no text is tokenised twice.

This module does not depend on games or rewards.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from slimrl.errors import RolloutError
from slimrl.inference.client import Completion
from slimrl.io.http import PASSING, HttpClient, HttpError, Limits, Peer, ask_again
from slimrl.types import SamplingParams

ABORTED = "aborted"
"""The failure of a rollout if the server aborted its request. SLIME aborts requests as soon as it has enough
samples."""
# These HTTP statuses do not depend on the request. They mean that the program at this address is not a router.
NO_ROUTER = frozenset({401, 403, 404, 405})
IS_IT_THERE = "Is it the address in --sglang-router-ip and --sglang-router-port, and is it running?"
NO_WORKER = 404  # a router without a worker at the moment also returns this status, so the request is sent again
NUM_CONCURRENT = 4096
NO_VERSION = 0  # a placeholder: SGLang's versions are names, see `RouterClient.weight_versions`

# Rounding may make the log-probability of a token with probability 1 larger than 0.
LogProb = Annotated[float, Field(ge=-1e9, le=1e-3, allow_inf_nan=False)]
TokenId = Annotated[int, Field(ge=0, lt=2**31, strict=True)]
Pair = Annotated[tuple[LogProb, TokenId], BeforeValidator(lambda pair: pair[:2] if isinstance(pair, list) else pair)]
Finish = Annotated[
    Literal["stop", "length", "abort"], BeforeValidator(lambda it: it.get("type") if isinstance(it, dict) else it)
]


class _Meta(BaseModel):
    finish_reason: Finish
    output_token_logprobs: list[Pair] = []
    weight_version: Any = None


class _Reply(BaseModel):
    meta_info: _Meta


@dataclass(frozen=True, slots=True)
class Router:
    """The address of SGLang's router, and the limits of a request.

    `timeout_s` limits a request with all its retries. The default is long, because the router answers slowly during an
    update of the weights. A failed request is retried for `patience_s`.
    """

    address: str
    timeout_s: float = 600.0
    patience_s: float = 15.0

    @asynccontextmanager
    async def client(
        self, sampling_params: Mapping[str, Any], end_of_turn: int, session: str = ""
    ) -> AsyncIterator["RouterClient"]:
        """Context manager: yield a client for one episode that samples with `sampling_params`. A completion also stops
        at the token `end_of_turn`. A router that routes by hash sends all requests of one `session` to the same server,
        whose cache then contains the KV of their common prefix."""
        # The generation config of a base model may name another end of turn than the chat template has.
        stop = sorted({*(sampling_params.get("stop_token_ids") or []), end_of_turn})
        headers = {"X-SMG-Routing-Key": session} if session else {}
        # The router is in the same network, so the client needs no proxy and loads no certificates.
        peer = Peer("router of SGLang", self.address, advice=IS_IT_THERE, uses_proxy=False, headers=headers)
        async with aclosing(HttpClient(peer, NUM_CONCURRENT)) as http:
            yield RouterClient(self, peer, http, {**sampling_params, "stop_token_ids": stop})


@dataclass
class RouterClient:
    """A client that samples through the router. `weight_versions` collects the weight versions that the replies
    report."""

    router: Router
    peer: Peer
    http: HttpClient
    sampling_params: Mapping[str, Any]
    weight_versions: list[str] = field(default_factory=list)
    version: int = NO_VERSION

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        """Return a completion of at most `params.max_tokens` tokens, sampled with the client's `sampling_params`.

        Raises RolloutError if the server aborted the request or sent an invalid reply, and UserError if no router
        answers.
        """
        url, router = f"{self.router.address}/generate", self.router
        sampling = {**self.sampling_params, "max_new_tokens": params.max_tokens}
        body = {"input_ids": prompt, "sampling_params": sampling, "return_logprob": True}
        limits = Limits(router.timeout_s, "timeout_s", router.patience_s, passing=PASSING | {NO_WORKER})
        try:
            reply = await ask_again(self.peer, lambda _: self.http.send("POST", url, body), limits)
            meta = _Reply.model_validate(reply).meta_info
        except HttpError as error:
            if not error.status or error.status in NO_ROUTER:
                raise
            reason = "router_reply" if error.status == 200 else "router_error"
            raise RolloutError(reason, f"{error.url} {error.said}") from error
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise RolloutError("router_reply", f"{place}: {first['msg']}, not {first['input']!r:.100}") from error
        pairs = meta.output_token_logprobs
        if meta.finish_reason == "abort":
            raise RolloutError(ABORTED, "the server gave the request up")
        if not 1 <= len(pairs) <= params.max_tokens:
            raise RolloutError("router_reply", f"{len(pairs)} tokens, and `max_new_tokens` was {params.max_tokens}")
        if meta.weight_version is not None:
            self.weight_versions.append(str(meta.weight_version))
        logprobs = tuple(min(0.0, pair[0]) for pair in pairs)
        return Completion(tuple(pair[1] for pair in pairs), logprobs, (NO_VERSION,) * len(pairs), meta.finish_reason)
