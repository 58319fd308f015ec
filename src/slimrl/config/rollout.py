"""How episodes are played: environments, sampling, limits and the inference engine, in training and in evaluation.

`EpisodesConfig` has what both have in common: the section `[orchestrator]` of `rl` and the top level of `eval`.
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
    """Where its code runs. `process` is a worker process, which may crash or hang without ending the run; `none` is the
    run's own. `auto` takes a process for what does not come with slimrl, but for classes of a notebook or of the
    Python API."""

    memory_gb: float = Field(default=0.0, ge=0)
    """Most main memory of a worker process with all that it starts, in GB: one that takes more is ended, its episodes
    are dropped and counted, and another takes its place. 0 sets no limit."""

    name: str = ""
    """What the environment is called in metrics and reports where there are several; empty is its `id`."""


class ReplyConfig(Config):
    """How long one reply of the policy may be."""

    max_tokens: int = Field(default=64, ge=1)
    """Most tokens sampled in one turn; a turn that reaches it is cut off there."""

    stop: list[str] = Field(default=[])
    """A turn also ends as soon as it contains one of these texts, such as a closing tag."""

    def params(self, temperature: float, seed: int) -> SamplingParams:
        """The sampling parameters of a reply at a temperature, where 0 is greedy."""
        return SamplingParams(self.max_tokens, temperature, stop=tuple(self.stop), seed=seed)


# Training has no top_p, top_k or min_p: the trainer computes the log-probability of a token from the whole softmax, the
# sampler that of the truncated distribution. The importance ratio would not start at 1, and the guard would stop the
# run.
class SamplingConfig(ReplyConfig):
    """How the policy's tokens are chosen while it gathers experience."""

    first: ClassVar[tuple[str, ...]] = ("temperature",)

    temperature: float = Field(default=1.0, gt=0)
    """Divides the logits. 1 samples from the model itself; lower is more repetitive, and explores less."""


class EvalSamplingConfig(ReplyConfig):
    """How the model's tokens are chosen at each of the `temperatures`."""

    first: ClassVar[tuple[str, ...]] = ("max_tokens", "stop")

    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample only from the likeliest tokens that together have this probability; 1 keeps all."""

    top_k: int = Field(default=0, ge=0)
    """Sample only from this many likeliest tokens; 0 keeps all."""

    min_p: float = Field(default=0.0, ge=0, lt=1)
    """Sample only from tokens at least this probable, relative to the likeliest one; 0 keeps all."""

    def params(self, temperature: float, seed: int) -> SamplingParams:
        """The sampling parameters of a reply at a temperature, with the truncation of the distribution."""
        whole = super().params(temperature, seed)
        return replace(whole, top_p=self.top_p, top_k=self.top_k, min_p=self.min_p)


class EpisodesConfig(Config):
    """Which episodes the policy plays, how its tokens are sampled, and when an episode ends."""

    env: list[EnvConfig] = Field(min_length=1)
    """The environments."""

    sampling: ReplyConfig

    max_turns: int = Field(default=10, ge=1)
    """Most turns the policy takes in one episode; the episode ends there."""

    episode_timeout_s: float = Field(default=60.0, gt=0)
    """Longest that an episode may wait for its environment, in seconds."""

    @property
    def labels(self) -> list[str]:
        """What the environments are called, all differently and without a slash: the name, or else the id, or the class
        of one's own; from the second of a name on with a number, as in `wordle-2`."""
        labels: list[str] = []
        for env in self.env:
            base = (env.name or env.id.rpartition(":")[2].replace("_", "-")).replace("/", "-")
            numbered = (base, *(f"{base}-{number}" for number in range(2, len(self.env) + 1)))
            labels.append(next(label for label in numbered if label not in labels))
        return labels


class OrchestratorConfig(EpisodesConfig):
    """Gathers rollouts: `batch_size / rollouts_per_example` tasks a step, each tried `rollouts_per_example` times."""

    first: ClassVar[tuple[str, ...]] = ("env", "batch_size", "rollouts_per_example")

    env: list[EnvConfig] = Field(min_length=1)
    """The environments to learn from, as in `--orchestrator.env '[{id="reverse-text"}]'`. With more than one, each step
    draws its tasks evenly from all of them."""

    batch_size: int = Field(default=64, ge=1)
    """Rollouts in one training step; a multiple of `rollouts_per_example`."""

    rollouts_per_example: int = Field(default=8, ge=1)
    """Attempts at each task. They form a group: an attempt counts as good or bad against the others of its group."""

    sampling: SamplingConfig = SamplingConfig()

    episode_timeout_s: float = Field(default=60.0, gt=0)
    """Longest that an episode may wait for its environment, in seconds. A rollout that exceeds it is dropped and
    counted as `drop/timeout`."""

    resample_factor: int = Field(default=3, ge=1)
    """A group whose advantages are all 0, as when its rewards are equal, teaches nothing. It is replaced by a new group
    until this many times the batch's groups have been sampled in the step. 1 never replaces one."""

    max_rollouts_gb: float = Field(default=20.0, gt=0)
    """Most space that the rollouts of all steps may take on the disk, in GB. Beyond it older steps lose their
    rollouts, evenly over the run; the metrics of all steps stay."""


class EngineConfig(Config):
    """Faster ways for the engine of slimrl to sample."""

    lookup_tokens: int = Field(default=0, ge=0)
    """Tokens to guess ahead, by looking up what followed a sequence's last two tokens earlier in it; 0 never guesses.
    Changes no token but for rounding, yet with few sequences at once and texts that repeat themselves fewer forwards
    are needed."""

    quantization: Literal["none", "int8"] = "none"
    """`int8` samples with weights rounded to 8 bits, of which half as much has to be read: nearly twice as fast with
    one sequence, no faster with 64, and slower in prefilling many. Trained weights stay as they are; log-probabilities
    are those of the rounded ones, a difference that `guard/mismatch_kl` shows and importance ratios make up for. Needs
    a CPU with AMX or AVX512-BF16, bfloat16, and an architecture of llama, qwen2 or qwen3."""


class InferenceConfig(EngineConfig):
    """What samples tokens: the engine of slimrl, or vLLM."""

    first: ClassVar[tuple[str, ...]] = ("backend", "base_url")

    backend: Literal["slimrl", "vllm"] = "slimrl"
    """`vllm` samples with vLLM, in processes of its own (docs/server.md)."""

    base_url: str = ""
    """A sampler of this `backend` that runs already, such as `http://localhost:8000`; empty starts one. It must see the
    run's directory, from which it reads new weights."""

    api_key_variable: str = Field(default="SAMPLER_API_KEY", min_length=1)
    """The environment variable that holds the key of the sampler at `base_url`, if it wants one, or of a sampler of
    slimrl's own in another process; `slimrl rl` makes a key for that if the variable is not set."""

    vllm_program: str = Field(default="vllm", min_length=1)
    """The command that starts vLLM, or its path: vLLM has an environment of its own, as its PyTorch is another."""

    port: int = Field(default=0, ge=0, le=65535)
    """Port of a sampler that is a process of its own, on this machine's loopback address; 0 takes a free one."""

    timeout_s: float = Field(default=300.0, gt=0)
    """Longest that a sampler in another process may give no sign of life, in seconds; then the run ends and names it,
    and can be resumed."""

    max_slots: int = Field(default=64, ge=1)
    """Sequences decoded at once. Each holds a key-value cache of up to `seq_len` tokens; more slots are faster until
    memory runs out."""
