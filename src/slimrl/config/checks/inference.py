"""Rules of `[inference]`: settings of one sampler do not go with another."""

from urllib.parse import urlsplit

from slimrl.config.checks.error import ConfigError
from slimrl.config.rollout import InferenceConfig
from slimrl.io.urls import is_http_url

OWN_ENGINE = ("lookup_tokens", "quantization")  # vLLM, and a server that runs already, have flags of their own for them


def check_inference(config: InferenceConfig) -> None:
    """Refuses settings that the chosen sampler does not read. Raises ConfigError."""
    if config.base_url and not (is_http_url(config.base_url) and urlsplit(config.base_url).path in ("", "/")):
        raise ConfigError(
            f"inference.base_url must be as http://localhost:8000, without a path, not {config.base_url!r}.",
            "inference.base_url",
        )
    if config.base_url:
        _check_defaults(config, "inference.base_url", "a sampler that runs already is not started", "vllm_program")
        _check_defaults(config, "inference.base_url", "it is set where that server is started", *OWN_ENGINE, "port")
        return
    if config.backend == "vllm":
        _check_defaults(config, "inference.backend", "only the engine of slimrl reads it", *OWN_ENGINE)
        _check_defaults(config, "inference.backend", "a vLLM that a run starts has no key", "api_key_variable")
    else:
        _check_defaults(config, "inference.backend", 'nothing but backend = "vllm" starts vLLM', "vllm_program")


def check_own_engine(config: InferenceConfig, command: str) -> None:
    """Refuses another sampler in a command that samples in its own process. Raises ConfigError."""
    why = f"`{command}` samples in its own process"
    _check_defaults(config, "inference.backend", why, "backend", "base_url", "timeout_s", "port")
    check_inference(config)


def _check_defaults(config: InferenceConfig, other: str, why: str, *names: str) -> None:
    for name in names:
        if (value := vars(config)[name]) != InferenceConfig.model_fields[name].default:
            key = f"inference.{name}"
            raise ConfigError(f"{key} = {value} cannot act: {why}. Remove it.", key, other)
