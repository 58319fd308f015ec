"""Defines the client for one sampling server: slimrl's own, or vLLM. Both servers receive and return token ids.

A restarted server has lost the weights that the run has sent. Tokens that it samples then have the version `default`,
and are discarded.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slimrl.errors import UserError
from slimrl.inference.client import Completion, FinishReason
from slimrl.models.weight_files import VLLM_ENGINE
from slimrl.types import SamplingParams
from slimrl_cluster.inference.server_link import Refused, SamplerAddress, ServerLink

SEEDS = 2**63  # vLLM's seeds are signed 64-bit numbers
DEFAULT = "default"  # the version of the weights that the server was started with
FINISH: dict[Any, FinishReason] = {"stop": "stop", "length": "length"}
ABORTED = "abort"


class Restarted(Exception):
    """The server was started again, and has lost the weights that the run has sent."""


class RemoteClient:
    """The client of one server. The tokens `stop_ids` end a sequence; the server must accept sequences of `seq_len`
    tokens. All async methods must run in the process's loop thread: pass their coroutines to `start` or `wait`."""

    def __init__(self, address: SamplerAddress, stop_ids: frozenset[int], seq_len: int) -> None:
        self._backend = address.backend
        self._link = ServerLink(address)
        self._stop_ids = sorted(stop_ids)
        self._seq_len = seq_len
        self.start, self.wait, self.close = self._link.start, self._link.wait, self._link.close
        self.has_weights = False  # True once the server has received weights of this run

    async def sample(self, prompt: list[int], params: SamplingParams, oldest: int = 0) -> Completion:
        """Sample until a stop token, a stop string, `max_tokens` or the end of the context. Cancelling the call frees
        its slot at the server. Raises Restarted if a token was sampled from weights older than the version `oldest`,
        and UserError if the server cannot be used."""
        body = _request(prompt, params, self._stop_ids)
        while True:
            try:
                reply = await self._link.post("/inference/v1/generate", body)
            except Refused as error:
                raise UserError(f"{error}{self._hint(error.status)}") from error
            try:
                choice = reply["choices"][0]
                if choice["finish_reason"] == ABORTED:  # another client has paused the server, or uses its slots
                    continue
                completion = self._completion(choice)
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise UserError(
                    f"{self._link.name} gives no token ids with log-probabilities and versions ({error!r}), but "
                    f"{str(reply)[:200]}."
                ) from error
            if min(completion.versions) < oldest:
                raise Restarted
            return completion

    async def check(self) -> str:
        """Return the version of the server's weights. Raises UserError unless the server matches the settings, and was
        started with the options that a run needs."""
        path = "/v1/models"
        match await self._link.get(path):
            case {"data": [{"owned_by": "slimrl" | "vllm" as kind, "max_model_len": int() as most}, *_]}:
                is_vllm = kind == "vllm"
            case reply:
                raise self._unknown(path, reply)
        if kind != self._backend:
            raise UserError(f'{self._link.name} is {kind}: set inference.backend = "{kind}".')
        if most < self._seq_len:
            flag = "--max-model-len" if is_vllm else "--context_len"
            raise UserError(
                f"{self._link.name} takes {most} tokens, and seq_len = {self._seq_len}. Start it with "
                f"{flag} {self._seq_len}, or lower seq_len."
            )
        if is_vllm:
            await self._check_vllm()
        return await self._held_version()

    async def check_unused(self) -> None:
        """Raise UserError if `check` does, or if the server has the weights of another run."""
        if (held := await self.check()) != DEFAULT and not self.has_weights:
            raise self._foreign(held)

    async def give_weights(self, directory: Path, version: int) -> None:
        """Make the server load the weights in `directory` as `version`, and sample from them. If the server restarts
        meanwhile, try once more. Raises UserError on failure."""
        for last in (False, True):
            await self.check()
            try:
                if self._backend == "vllm":
                    await self._update_vllm(directory, version)
                else:
                    body = {"weight_dir": str(directory), "version": version}
                    await self._link.post("/update_weights", body, retries=False)
                self.has_weights = True
                return
            except Refused as error:
                if last or await self._held_version() != DEFAULT:
                    raise UserError(f"{error} So it does not sample from the weights in {directory}.") from error

    async def _update_vllm(self, directory: Path, version: int) -> None:
        # vLLM loads new weights in place, so it must be paused. After a failure it stays paused, because it must not
        # sample from partly updated weights.
        await self._link.post("/pause?mode=keep", None)
        await self._link.post("/start_weight_update", None, retries=False)
        await self._link.post("/update_weights", {"update_info": {"weight_dir": str(directory)}}, retries=False)
        await self._link.post("/finish_weight_update", {"weight_version": str(version)}, retries=False)
        await self._link.post("/resume", None)

    def _completion(self, choice: Mapping[str, Any]) -> Completion:
        token_ids = tuple(map(int, choice["token_ids"]))
        logprobs = tuple(float(one["logprob"]) for one in choice["logprobs"]["content"])
        versions: list[int] = []
        for span in choice["weight_versions"]:
            versions += [self._number(span["version"])] * (span["end"] - span["start"])
        if not token_ids or not len(token_ids) == len(logprobs) == len(versions):
            raise ValueError(f"{len(token_ids)} tokens, {len(logprobs)} log-probabilities, {len(versions)} versions")
        return Completion(token_ids, logprobs, tuple(versions), FINISH[choice["finish_reason"]])

    def _number(self, version: str) -> int:
        """Return a version as a number. The version `default` is 0 before this run sends weights, and -1 afterwards:
        then the server was restarted. Raises UserError if another run has sent the weights."""
        if version == DEFAULT:
            return -1 if self.has_weights else 0
        if not self.has_weights:
            raise self._foreign(int(version))
        return int(version)

    def _foreign(self, version: int | str) -> UserError:
        return UserError(
            f"{self._link.name} has weights of another run (version {version}). Start it again, or let the run give it "
            "its own."
        )

    def _unknown(self, path: str, reply: Any) -> UserError:
        return UserError(
            f"{self._link.name} answers {path} with {str(reply)[:200]}, which is neither slimrl nor vLLM of a version "
            "that slimrl knows. Start one of them, or correct inference.base_url."
        )

    async def _held_version(self) -> str:
        path = "/weight_info"
        match await self._link.get(path):
            case {"weight_version": str() as held}:
                return held
            case reply:
                raise self._unknown(path, reply)

    async def _check_vllm(self) -> None:
        path = "/server_info?config_format=json"
        try:
            reply = await self._link.get(path)
        except Refused as error:
            raise UserError(f"{error}{self._hint(error.status)}") from error
        match reply:
            case {
                "vllm_config": {
                    "model_config": {"logprobs_mode": mode},
                    "weight_transfer_config": transfer,
                }
            }:
                backend = transfer.get("backend") if isinstance(transfer, dict) else None
            case _:
                raise self._unknown(path, reply)
        if mode != "processed_logprobs":
            raise UserError(
                f"{self._link.name} gives {mode}, which are not those of the distribution that it samples from. Start "
                "it with --logprobs-mode processed_logprobs."
            )
        if backend != VLLM_ENGINE:
            raise UserError(
                f"{self._link.name} takes new weights by {backend or 'nothing'}. Start it with slimrl's plug-in and "
                f"""--weight-transfer-config '{{"backend": "{VLLM_ENGINE}"}}', as docs/server.md says."""
            )

    def _hint(self, status: int) -> str:
        """Return a hint about the start option that vLLM lacks, as its HTTP `status` shows; an empty text for other
        statuses and servers."""
        if self._backend != "vllm" or status not in (403, 404):
            return ""
        missing = "the flag --enable-scale-out" if status == 403 else "the variable VLLM_SERVER_DEV_MODE=1"
        return f" Start vLLM with {missing}."


def _request(prompt: list[int], params: SamplingParams, stop_ids: list[int]) -> dict[str, Any]:
    return {
        "token_ids": prompt,
        "sampling_params": {
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k or -1,
            "min_p": params.min_p,
            "seed": params.seed % SEEDS,
            "stop": list(params.stop),
            "stop_token_ids": stop_ids,
            "include_stop_str_in_output": True,
            "logprobs": 0,
        },
    }
