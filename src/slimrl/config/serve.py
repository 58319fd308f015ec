"""The top level of `slimrl inference`: the model that the server offers, its address, and its limits."""

from typing import ClassVar

from pydantic import Field

from slimrl.config.base import CommandConfig
from slimrl.config.model import ModelConfig


class ServeConfig(CommandConfig):
    """Serve a model over HTTP, with OpenAI's protocol and with a protocol that takes and returns token ids. Needs the
    extra `server`."""

    command: ClassVar[str] = "inference"
    examples: ClassVar[tuple[str, ...]] = (
        "slimrl inference @ configs/debug/inference.toml",
        "slimrl inference --model.name outputs/rl/weights/step_100 --port 8001",
        "SLIMRL_API_KEY=... slimrl inference --model.name Qwen/Qwen3-0.6B --host 0.0.0.0 --context_len 4096",
    )

    first = ("host", "port", "api_key", "served_model_name", "context_len", "max_slots", "max_queue")

    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on. Any address that other machines can reach needs an `api_key`."""

    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one, which the first line of output names."""

    api_key: str = ""
    """Clients must send it as `Authorization: Bearer KEY`; if empty, everyone has access. Set it by the variable
    SLIMRL_API_KEY: flags are visible to every user of the machine. `--dry-run` does not show it."""

    served_model_name: str = ""
    """Name of the model in requests; if empty, `model.name`."""

    context_len: int = Field(default=2048, ge=2)
    """Longest sequence in tokens, prompt included. Longer prompts are refused."""

    max_slots: int = Field(default=32, ge=1)
    """Completions computed at once. Each holds a key-value cache of up to `context_len` tokens."""

    max_queue: int = Field(default=512, ge=0)
    """Completions that may wait for a slot; more are answered with status 429."""

    grace_s: int = Field(default=3, ge=0)
    """Maximum time for open requests after the server was asked to stop, in seconds."""

    model: ModelConfig = ModelConfig()
