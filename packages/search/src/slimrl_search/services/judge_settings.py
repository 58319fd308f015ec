"""The settings of the judges' scripts, read from `.env`: the model's name and the server's address."""

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from slimrl.errors import UserError
from slimrl.io.urls import fault_of_base_url, is_loopback

DEFAULT_MODEL = "qwen2.5:7b"
# Ollama's address: a user of Ollama needs neither a server of ours nor a setting.
DEFAULT_URL = "http://localhost:11434/v1"
# Names in Ollama's spelling: the model on the Hub for vLLM, and its weights for llama.cpp.
KNOWN = {
    "qwen2.5:3b": ("Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-3B-Instruct-GGUF"),
    "qwen2.5:7b": ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct-GGUF"),
    "qwen3-4b": ("Qwen/Qwen3-4B", "Qwen/Qwen3-4B-GGUF"),
    "qwen3-8b": ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-GGUF"),
}


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """The judge's model and address: `model` is the name in requests, `base_url` the address of its server."""

    model: str
    base_url: str

    @property
    def port(self) -> int:
        """The port of the address. Raises UserError unless the address is on this machine."""
        if fault := fault_of_base_url(self.base_url):
            raise UserError(f"JUDGE_BASE_URL has {fault}. Remove it; the address is as {DEFAULT_URL}.")
        try:
            parts = urlsplit(self.base_url)
            port = parts.port or 80
        except ValueError as error:
            raise UserError(f"JUDGE_BASE_URL is {self.base_url!r} ({error}); it is as {DEFAULT_URL}.") from error
        if parts.scheme != "http" or parts.path.rstrip("/") != "/v1":
            raise UserError(f"JUDGE_BASE_URL is {self.base_url!r}; it is as {DEFAULT_URL}.")
        if not is_loopback(parts.hostname or ""):
            raise UserError(
                f"JUDGE_BASE_URL is {self.base_url}, which is another machine: start the judge there. For one on this "
                f"machine it is as {DEFAULT_URL}."
            )
        return port


def judge_settings() -> JudgeSettings:
    """Return the settings in the process's environment, into which the scripts have read `.env`."""
    return JudgeSettings(
        os.environ.get("JUDGE_MODEL", "").strip() or DEFAULT_MODEL,
        os.environ.get("JUDGE_BASE_URL", "").strip() or DEFAULT_URL,
    )
