"""A client of SGLang's router: token ids go in, token ids with their log-probabilities are returned, over plain HTTP.

The module knows nothing of games or rewards. It sends and reads no text, so nothing is ever tokenised twice.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from slimrl.errors import RolloutError
from slimrl.inference.client import Completion, FinishReason
from slimrl.io.http import PASSING, HttpClient, HttpError, Limits, Peer, ask_again
from slimrl.types import SamplingParams

ABORTED = "aborted"
"""The failure of a rollout whose request the server aborted, as SLIME has it do once it has enough samples."""
# Statuses that do not depend on the request: something else than a router answers at this address.
NO_ROUTER = frozenset({401, 403, 404, 405})
IS_IT_THERE = "Is it the address in --sglang-router-ip and --sglang-router-port, and is it running?"
NO_WORKER = 404  # also from a router that has no worker at the moment, so that the request is tried again
NUM_CONCURRENT = 4096
ROUNDING = 1e-3  # how far above 0 rounding may put the log-probability of a certain token
LOWEST = -1e9  # the lowest log-probability that is believed
MAX_TOKEN_ID = 2**31 - 1
FINISH: dict[Any, FinishReason] = {"stop": "stop", "length": "length"}
NO_VERSION = 0  # slimrl numbers weight versions; SGLang names them, in `RouterClient.weight_versions`


@dataclass(frozen=True, slots=True)
class Router:
    """The address of SGLang's router, and the limits of a request. It answers late while weights are updated.

    `timeout_s` limits a request with all its tries, and `patience_s` the time for which failures are tried again.
    """

    address: str
    timeout_s: float = 600.0
    patience_s: float = 15.0

    @asynccontextmanager
    async def client(
        self, sampling_params: Mapping[str, Any], end_of_turn: int, session: str = ""
    ) -> AsyncIterator["RouterClient"]:
        """A client for one episode, which sends these `sampling_params`. With a hashing router, requests of one
        `session` go to the same server, and find the KV cache of their beginning there."""
        headers = {"X-SMG-Routing-Key": session} if session else {}
        # The router is in the same network: no proxy is between, and certificates need not be loaded.
        peer = Peer("router of SGLang", self.address, advice=IS_IT_THERE, uses_proxy=False, headers=headers)
        async with aclosing(HttpClient(peer, NUM_CONCURRENT)) as http:
            yield RouterClient(self, peer, http, with_stop(sampling_params, end_of_turn))


def with_stop(sampling_params: Mapping[str, Any], end_of_turn: int) -> dict[str, Any]:
    """The parameters with the chat template's end of turn among the stop tokens. The generation config of a base model
    may name another."""
    given = sampling_params.get("stop_token_ids") or []
    return {**sampling_params, "stop_token_ids": sorted({*given, end_of_turn})}


@dataclass
class RouterClient:
    """A client that samples through the router. `weight_versions` has the version that each reply names."""

    router: Router
    peer: Peer
    http: HttpClient
    sampling_params: Mapping[str, Any]
    weight_versions: list[str] = field(default_factory=list)
    version: int = 0  # as SLIME has names for its versions, and no numbers

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        """A completion of at most `params.max_tokens` tokens, sampled by SLIME's own `sampling_params`.

        Raises RolloutError if the request was aborted or cannot be answered, and UserError if no router answers.
        """
        body = {
            "input_ids": prompt,
            "sampling_params": {**self.sampling_params, "max_new_tokens": params.max_tokens},
            "return_logprob": True,
        }
        meta = meta_info(await self._post(body))
        completion = completion_of(meta, params.max_tokens)
        if "weight_version" in meta:
            self.weight_versions.append(str(meta["weight_version"]))
        return completion

    async def _post(self, body: Mapping[str, Any]) -> Any:
        """The JSON of the reply. Raises UserError if nothing answers, or another program than a router."""
        url, router = f"{self.router.address}/generate", self.router
        limits = Limits(router.timeout_s, "timeout_s", router.patience_s, passing=PASSING | {NO_WORKER})
        try:
            return await ask_again(self.peer, lambda _: self.http.send("POST", url, body), limits)
        except HttpError as error:
            if not error.status or error.status in NO_ROUTER:
                raise
            reason = "router_reply" if error.status == 200 else "router_error"
            raise RolloutError(reason, f"{error.url} {error.said}") from error


def meta_info(reply: Any) -> Mapping[str, Any]:
    """The `meta_info` of a reply. Raises RolloutError if there is none."""
    meta = reply.get("meta_info") if isinstance(reply, dict) else None
    if not isinstance(meta, dict):
        raise RolloutError("router_reply", f"a reply without `meta_info`: {reply!r:.300}")
    return meta


def completion_of(meta: Mapping[str, Any], max_tokens: int) -> Completion:
    """The completion in a reply, from `output_token_logprobs`: a `[log-probability, token id, ...]` for each token.

    Raises RolloutError if the request was aborted, or the reply is malformed.
    """
    finish = meta.get("finish_reason")
    kind = finish.get("type") if isinstance(finish, dict) else finish
    if kind == "abort":
        raise RolloutError(ABORTED, f"the server gave the request up: {finish!r:.200}")
    if kind not in FINISH:
        raise RolloutError("router_reply", f"`finish_reason` is {finish!r:.100}, expected stop, length or abort")
    token_ids, logprobs = tokens_of(meta.get("output_token_logprobs"))
    if len(token_ids) > max_tokens:
        raise RolloutError("router_reply", f"{len(token_ids)} tokens, and `max_new_tokens` was {max_tokens}")
    return Completion(token_ids, logprobs, (NO_VERSION,) * len(token_ids), FINISH[kind])


def tokens_of(pairs: Any) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The token ids and their log-probabilities. Raises RolloutError if there are none, or they are not numbers."""
    if not isinstance(pairs, list) or not pairs:
        raise RolloutError("router_reply", f"`output_token_logprobs` is {pairs!r:.100}, expected at least one token")
    token_ids: list[int] = []
    logprobs: list[float] = []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) < 2 or type(pair[1]) is not int or not 0 <= pair[1] <= MAX_TOKEN_ID:
            raise RolloutError("router_reply", f"{pair!r:.100} is no [log-probability, token id]")
        if not isinstance(pair[0], int | float) or not LOWEST < pair[0] <= ROUNDING:
            raise RolloutError("router_reply", f"the log-probability of token {pair[1]} is {pair[0]!r:.100}")
        token_ids.append(pair[1])
        logprobs.append(min(0.0, float(pair[0])))
    return tuple(token_ids), tuple(logprobs)
