"""The section `[teacher]`: the model that is distilled into the policy, and its context. The teacher's weight in the
loss is in `loss.py`.

A teacher reads the same task with more context, and returns a log-probability for every token that the policy sampled.
"""

from typing import Any, Literal

from pydantic import Field

from slimrl.config.base import Config


class TeacherConfig(Config):
    """On-policy distillation: the teacher's log-probability of each sampled token is part of its advantage
    (docs/distillation.md)."""

    env_args: dict[str, Any] = Field(default={})
    """The additional context of the teacher, such as `{document = true}`: these replace `args` of the environments when
    its opening messages are created. They must change only the first messages."""

    seq_len: int = Field(default=4096, ge=2)
    """Longest conversation that the teacher reads, in tokens, its context included; at least the `seq_len` of the run.
    A rollout that is longer with that context is dropped and counted as `drop/teacher_prompt_too_long`."""


class NoTeacherConfig(Config):
    """No teacher: the reward alone."""

    type: Literal["none"] = "none"
    """`none`, the default: the reward alone."""


class PolicyTeacherConfig(TeacherConfig):
    """The policy's own present weights, with more context. Needs memory only for one more forward pass."""

    type: Literal["policy"] = "policy"
    """`policy`: the weights in training, in their present state."""


class ModelTeacherConfig(TeacherConfig):
    """Frozen weights in this process: the initial weights of RL, or another model. They are on the policy's device, or
    on the GPU in `teacher_gpu_ids`."""

    type: Literal["model"] = "model"
    """`model`: frozen weights."""

    name: str = ""
    """Another model, as in `model.name`; it must have the policy's vocabulary. If empty, take the initial weights of
    RL: after the warm-up, if there is one."""


class ServerTeacherConfig(TeacherConfig):
    """A server with OpenAI's `/v1/completions` that returns the log-probabilities of a prompt of token ids: vLLM, or
    `slimrl inference`."""

    type: Literal["server"] = "server"
    """`server`: a model behind HTTP. It must have the policy's vocabulary."""

    base_url: str = Field(min_length=1)
    """Its address, such as `http://localhost:8000/v1`. No proxy is used for an address on this machine."""

    model: str = Field(min_length=1)
    """The server's name for the model."""

    api_key_variable: str = Field(default="TEACHER_API_KEY", min_length=1)
    """The environment variable with the key, if the server needs one."""

    timeout_s: float = Field(default=120.0, gt=0)
    """Maximum time to score one rollout, in seconds, all tries included; then the run stops, and can be resumed."""

    num_concurrent: int = Field(default=8, ge=1)
    """Rollouts sent to the server at once."""


AnyTeacherConfig = NoTeacherConfig | PolicyTeacherConfig | ModelTeacherConfig | ServerTeacherConfig
