"""The top level of `slimrl inference`: the model that the server offers, its address, and its limits."""

from typing import ClassVar, Literal

from pydantic import Field

from slimrl.config.base import CommandConfig
from slimrl.config.model import ModelConfig


class ServeConfig(CommandConfig):
    """Serve a model over HTTP, in OpenAI's protocol and token ids in, token ids out. Needs the extra `server`."""

    command: ClassVar[str] = "inference"
    examples: ClassVar[tuple[str, ...]] = (
        "slimrl inference @ configs/debug/inference.toml",
        "slimrl inference --model.name outputs/rl/weights/step_100 --port 8001",
        "SLIMRL_API_KEY=... slimrl inference --model.name Qwen/Qwen3-0.6B --host 0.0.0.0 --context_len 4096",
    )

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on. Any that other machines can reach needs an `api_key`."""

    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one, which the first line of output names."""

    api_key: str = ""
    """Clients must send it as `Authorization: Bearer KEY`; empty lets everyone in. Set it by the variable
    SLIMRL_API_KEY: flags are visible to every user of the machine. `--dry-run` does not show it."""

    served_model_name: str = ""
    """Name that clients ask for; empty is `model.name`."""

    context_len: int = Field(default=2048, ge=2)
    """Longest sequence in tokens, prompt included. Longer prompts are refused."""

    max_slots: int = Field(default=32, ge=1)
    """Completions computed at once. Each holds a key-value cache of up to `context_len` tokens."""

    max_queue: int = Field(default=512, ge=0)
    """Completions that may wait for a slot; more are answered with status 429."""

    lookup_tokens: int = Field(default=0, ge=0)
    """Tokens to guess ahead, by looking up what followed a sequence's last two tokens earlier in it; 0 never guesses.
    Changes no token but for rounding, yet with few clients at once and texts that repeat themselves fewer forwards
    are needed."""

    quantization: Literal["none", "int8"] = "none"
    """`int8` samples with weights rounded to 8 bits, of which half as much has to be read: nearly twice as fast with
    one sequence, no faster with 64, and slower in prefilling many. Log-probabilities are those of the rounded weights.
    Needs a CPU with AMX or AVX512-BF16, bfloat16, and an architecture of llama, qwen2 or qwen3."""

    grace_s: int = Field(default=3, ge=0)
    """How long requests under way may go on after the server was told to stop, in seconds."""

    model: ModelConfig = ModelConfig()
