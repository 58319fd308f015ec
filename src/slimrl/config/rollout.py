"""The settings of episodes in training and in evaluation: environments, sampling, limits and the inference engine.

The section `[orchestrator]` of `rl` and the top level of `eval` both extend `EpisodesConfig`.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field

from slimrl.config.base import Config
from slimrl.types import SamplingParams

Worker = Literal["auto", "process", "none"]


class EnvConfig(Config):
    """One environment: the source of tasks and of the reward."""

    shorthand: ClassVar[str] = "id"

    id: str = Field(min_length=1)
    """A built-in environment (`reverse-text`), or one of your own as `path/to/file.py:ClassName` or
    `package.module:ClassName`."""

    args: dict[str, Any] = Field(default={})
    """Keyword arguments for the environment's constructor; its own documentation names them."""

    worker: Worker = "auto"
    """Where its code runs: `process` is a worker process, which may crash or hang without ending the run; `none` is the
    run's own process. `auto` takes a worker process for environments from outside slimrl, except classes of a notebook
    or of the Python API."""

    name: str = ""
    """The name of the environment in metrics and reports if there are several; if empty, its `id`."""


class ReplyConfig(Config):
    """Limits on the length of one reply of the policy."""

    max_tokens: int = Field(default=64, ge=1)
    """Maximum number of tokens sampled in one turn; a turn that reaches it is cut off there."""

    stop: list[str] = Field(default=[])
    """A turn also ends as soon as it contains one of these texts, such as a closing tag."""

    def params(self, temperature: float, seed: int) -> SamplingParams:
        """Return the sampling parameters of a reply at a temperature; 0 is greedy."""
        return SamplingParams(self.max_tokens, temperature, stop=tuple(self.stop), seed=seed)


# Training has no top_p, top_k or min_p, because the guard would stop the run. The sampler would compute the
# log-probability of a token from a truncated distribution, and the trainer from the whole softmax. So the importance
# ratio would not start at 1.
class SamplingConfig(ReplyConfig):
    """The settings for sampling the policy's tokens in training."""

    first: ClassVar[tuple[str, ...]] = ("temperature",)

    temperature: float = Field(default=1.0, gt=0)
    """Divides the logits. 1 samples from the model itself; lower is more repetitive, and explores less."""


class EvalSamplingConfig(ReplyConfig):
    """The settings for sampling the model's tokens at each of the `temperatures`."""

    first: ClassVar[tuple[str, ...]] = ("max_tokens", "stop")

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample only from the likeliest tokens that together have this probability; 1 keeps all."""

    top_k: int = Field(default=0, ge=0)
    """Sample only from this many likeliest tokens; 0 keeps all."""

    min_p: float = Field(default=0.0, ge=0, lt=1)
    """Sample only from tokens at least this probable, relative to the likeliest one; 0 keeps all."""

    def params(self, temperature: float, seed: int) -> SamplingParams:
        """Return the sampling parameters of a reply at a temperature, with `top_p`, `top_k` and `min_p`."""
        whole = super().params(temperature, seed)
        return replace(whole, top_p=self.top_p, top_k=self.top_k, min_p=self.min_p)


class LimitsConfig(Config):
    """The limits of an episode."""

    max_turns: int = Field(default=10, ge=1)
    """Maximum number of turns of the policy in one episode; the episode stops there."""

    episode_timeout_s: float = Field(default=60.0, gt=0)
    """Maximum wait of an episode for its environment, in seconds."""


class EpisodesConfig(LimitsConfig):
    """The episodes that the policy plays, their sampling, and their limits."""

    env: list[EnvConfig] = Field(min_length=1)
    """The environments."""

    sampling: ReplyConfig

    @property
    def labels(self) -> list[str]:
        """The distinct labels of the environments. A label is the environment's name, or its id or class name if it has
        no name. Labels have no slash. A repeated label gets a number, as in `wordle-2`."""
        labels: list[str] = []
        for env in self.env:
            base = (env.name or env.id.rpartition(":")[2].replace("_", "-")).replace("/", "-")
            numbered = (base, *(f"{base}-{number}" for number in range(2, len(self.env) + 1)))
            labels.append(next(label for label in numbered if label not in labels))
        return labels


class OrchestratorConfig(EpisodesConfig):
    """Gathers rollouts: `batch_size / rollouts_per_example` tasks per step, each tried `rollouts_per_example` times."""

    first: ClassVar[tuple[str, ...]] = ("env", "batch_size", "rollouts_per_example")

    env: list[EnvConfig] = Field(min_length=1)
    """The environments to learn from, as in `--orchestrator.env '[{id="reverse-text"}]'`. With more than one, each step
    draws its tasks evenly from all of them."""

    batch_size: int = Field(default=64, ge=1)
    """Rollouts in one training step; a multiple of `rollouts_per_example`."""

    rollouts_per_example: int = Field(default=8, ge=1)
    """Attempts at each task. They form a group: an attempt counts as good or bad relative to its group."""

    sampling: SamplingConfig = SamplingConfig()

    episode_timeout_s: float = Field(default=60.0, gt=0)
    """Maximum wait of an episode for its environment, in seconds. A rollout that exceeds it is dropped and counted as
    `drop/timeout`."""

    resample_factor: int = Field(default=3, ge=1)
    """A group whose advantages are all 0, for example because its rewards are equal, teaches nothing. It is replaced by
    a new group until this many times the batch's groups have been sampled in the step. 1 never replaces one."""


class InferenceConfig(Config):
    """The sampler of tokens: the engine of slimrl, or vLLM."""

    first: ClassVar[tuple[str, ...]] = ("backend", "base_url")

    backend: Literal["slimrl", "vllm"] = "slimrl"
    """`vllm` samples with vLLM, in separate processes (docs/server.md)."""

    base_url: str = ""
    """A running sampler of this `backend`, such as `http://localhost:8000`; if empty, start one. It must have access to
    the run's directory, from which it reads new weights."""

    api_key_variable: str = Field(default="SAMPLER_API_KEY", min_length=1)
    """The environment variable with the key of the sampler at `base_url`, if it needs one, or of slimrl's own sampler
    in another process; `slimrl rl` creates a key for the latter if the variable is not set."""

    vllm_program: str = Field(default="vllm", min_length=1)
    """The command that starts vLLM, or its path: vLLM needs a separate environment, as it requires another PyTorch."""

    port: int = Field(default=0, ge=0, le=65535)
    """Port of a sampler in a separate process, on this machine's loopback address; 0 takes a free one."""

    timeout_s: float = Field(default=300.0, gt=0)
    """Maximum time without a sign of life from a sampler in another process, in seconds. Then the run ends with its
    name in the message, and can be resumed."""

    max_slots: int = Field(default=64, ge=1)
    """Sequences decoded at once. Each holds a key-value cache of up to `seq_len` tokens; more slots are faster until
    memory runs out."""
