"""A teacher on an HTTP server. `/v1/completions` of this server must return log-probabilities for the prompt's tokens.

vLLM and `slimrl inference` can return these values (`echo`). Each rollout is one request. Servers require that a
request samples at least one token; this token is dropped. Tokens are sent as ids. If the reply contains ids, they must
equal the sent ids.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from slimrl.config.teacher import ServerTeacherConfig
from slimrl.errors import UserError
from slimrl.inference.client import Completion, FinishReason
from slimrl.io.http import HttpClient, HttpError, Limits, Peer, ask_again
from slimrl.io.loop_thread import LoopTasks, gather_all
from slimrl.io.secrets import read_api_key
from slimrl.types import Sample, SamplingParams

AGAIN = "The run stops before the update; once the server is well, it continues with `--resume`."
ID = "token_id:"
# Send these, because vLLM reads missing settings from the model's generation_config.json.
WHOLE_DISTRIBUTION = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
MALFORMED = (ValueError, LookupError, TypeError, AttributeError)  # exceptions of an unexpected reply


class ServerTeacher:
    """A `distill.Teacher` that sends up to `num_concurrent` requests at once. It also has a method `sample`, with which
    `slimrl probe` plays episodes."""

    version = 0  # the teacher's weights never change

    def __init__(self, config: ServerTeacherConfig) -> None:
        self._config = config
        self._url = f"{config.base_url.rstrip('/')}/completions"
        self._peer = Peer("teacher", config.base_url, read_api_key(config.api_key_variable), AGAIN)
        self._limits = Limits(config.timeout_s, "teacher.timeout_s")
        self._client = HttpClient(self._peer, config.num_concurrent)
        self._tasks = LoopTasks(self._client.aclose)

    @property
    def num_concurrent(self) -> int:
        """The maximum number of requests at once."""
        return self._config.num_concurrent

    def score(self, samples: Sequence[Sample], temperature: float) -> list[list[float]]:
        """Return the log-probabilities; see `distill.Teacher`. `temperature` must be 1 (see `check_teacher`)."""
        # A request's time limit excludes its wait for a place here.
        return self._tasks.wait(gather_all(*map(self._score, samples), at_once=self.num_concurrent))

    def check_vocabulary(self, texts: Mapping[int, str]) -> None:
        """Raise UserError if the server has another vocabulary: it returns texts for these token ids, and most differ
        from `texts`. A server that returns only ids cannot be checked."""
        names, _ = self._tasks.wait(self._echo(list(texts), as_ids=False))
        named = [(name, text) for name, text in zip(names, texts.values(), strict=True) if not name.startswith(ID)]
        other = [f"{name!r} for {text!r}" for name, text in named if _word(name) != _word(text)]
        # Even for equal vocabularies a few texts may differ, because servers display some tokens differently.
        if len(other) > len(named) / 2:
            raise UserError(
                f"the teacher at {self._url} has another vocabulary than the policy ({', '.join(other[:3])}): it would "
                "score other words than were sampled. Take a model of the same family."
            )

    async def _score(self, sample: Sample) -> list[float]:
        _, logprobs = await self._echo(list(sample.token_ids_T), as_ids=True)
        return [logprobs[t] for t, trained in enumerate(sample.loss_mask_T) if trained]

    async def _echo(self, token_ids: list[int], as_ids: bool) -> tuple[list[str], list[float]]:
        """Return the texts (or ids) and the log-probabilities that the server returns for the tokens. The first token
        has no log-probability, so its value is 0. Raises UserError if the reply has an unexpected structure."""
        body = {"prompt": token_ids, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 1.0}
        reply = await self._ask(body | {"return_tokens_as_token_ids": as_ids}, len(token_ids))
        return self._read_echo(reply, token_ids)

    async def sample(self, prompt: list[int], params: SamplingParams) -> Completion:
        """Sample a reply with the teacher and return it; see `inference.client.Client`. The reply's log-probabilities
        are set to 0, because nothing uses them."""
        body = {
            "prompt": prompt,
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            **WHOLE_DISTRIBUTION,
            "seed": params.seed,
            "stop": list(params.stop),
            "include_stop_str_in_output": True,
            "return_token_ids": True,
        }
        reply = await self._tasks.run(self._ask(body, len(prompt)))
        try:
            choice = reply["choices"][0]
            token_ids, reason = tuple(map(int, choice["token_ids"])), choice["finish_reason"]
            if not token_ids:
                raise LookupError("a turn has at least the token that ends it")
        except MALFORMED as error:
            raise UserError(
                f"the teacher at {self._url} does not tell the ids of its tokens, but {reply!r:.200}. It needs "
                "`return_token_ids` in /v1/completions, as vLLM and `slimrl inference` have."
            ) from error
        finish: FinishReason = "length" if reason == "length" else "stop"
        return Completion(token_ids, (0.0,) * len(token_ids), (0,) * len(token_ids), finish)

    async def _ask(self, body: dict[str, Any], length: int) -> Any:
        """Send a request and return its reply. While the server is down or busy, retry until the time limit."""
        body["model"] = self._config.model
        try:
            return await ask_again(self._peer, lambda _: self._client.send("POST", self._url, body), self._limits)
        except HttpError as error:
            key = f"Set the variable {self._config.api_key_variable}. "
            hint = {
                400: "If it is too long for it, raise the server's limit, or lower teacher.seq_len. ",
                401: key,
                403: key,
                404: "See to teacher.base_url, which ends in /v1, and to teacher.model. ",
            }.get(error.status, "")
            raise UserError(
                f"the teacher at {self._url} did not score a rollout of {length} tokens: it {error.said}. {hint}{AGAIN}"
            ) from error

    def _read_echo(self, reply: Any, token_ids: Sequence[int]) -> tuple[list[str], list[float]]:
        try:
            found = reply["choices"][0]["logprobs"]
            # The last entries belong to the sampled token, which is dropped.
            names = list(map(str, found["tokens"][: len(token_ids)]))
            of_prompt = [0.0, *(float(value) for value in found["token_logprobs"][1 : len(token_ids)])]
            ids = [int(name.removeprefix(ID)) for name in names if name.startswith(ID)]
            if len(of_prompt) != len(token_ids):
                raise LookupError(f"{len(of_prompt)} log-probabilities for {len(token_ids)} tokens")
        except MALFORMED as error:
            raise UserError(
                f"the teacher at {self._url} gave no log-probabilities of its prompt, but {reply!r:.200}. It needs "
                f"`echo` with `logprobs` in /v1/completions, as vLLM and `slimrl inference` have. {AGAIN}"
            ) from error
        if ids and ids != list(token_ids):
            raise UserError(f"the teacher at {self._url} scored other tokens than it was sent, by their ids. {AGAIN}")
        return names, of_prompt


def _word(name: str) -> str:
    """Return a token's text without leading spaces, because tokenizers write a space in different ways."""
    return name.lstrip(" \u0120\u2581")
