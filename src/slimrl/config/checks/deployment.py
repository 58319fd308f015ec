"""Rules of `[deployment]`: which parts a run may have, and how they may meet."""

from urllib.parse import urlsplit

from slimrl.config.checks.error import ConfigError
from slimrl.config.deployment import DeploymentConfig
from slimrl.config.run import RLConfig
from slimrl.io.urls import is_loopback


def check_deployment(config: RLConfig) -> None:
    """Refuses parts that do not go together. Raises ConfigError."""
    deployment, inference = config.deployment, config.inference
    if deployment.type == "one-process":
        _check_one_process(config)
    if inference.base_url and config.warmup.max_steps:
        raise ConfigError(
            "the warm-up is measured before and after, and the sampler at inference.base_url may have other weights "
            "than the model's at its start: warm up first by `slimrl sft`, and set warmup.max_steps = 0, or leave "
            "inference.base_url away.",
            "inference.base_url",
            "warmup.max_steps",
        )
    if deployment.weights == "files":
        return
    if inference.base_url and not is_loopback(urlsplit(inference.base_url).hostname or ""):
        raise ConfigError(
            'deployment.weights = "broadcast" reaches samplers on this host alone: take files for the one at '
            f"inference.base_url = {inference.base_url}.",
            "deployment.weights",
            "inference.base_url",
        )


def _check_one_process(config: RLConfig) -> None:
    if config.inference.backend == "vllm" or config.inference.base_url:
        raise ConfigError(
            'deployment.type = "one-process" samples in that process: leave inference.backend and inference.base_url '
            'away, or set deployment.type = "processes".',
            "deployment.type",
            "inference.backend",
        )
    for name, field in DeploymentConfig.model_fields.items():
        if name != "type" and vars(config.deployment)[name] != field.default:
            raise ConfigError(
                f'deployment.{name} cannot act: deployment.type = "one-process" has no other parts. Remove one of the '
                "two.",
                f"deployment.{name}",
                "deployment.type",
            )
