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
    if inference.base_url and config.inference_gpu_ids:
        raise ConfigError(
            "the sampler at inference.base_url has the device that it was started with: remove inference_gpu_ids.",
            "inference_gpu_ids",
            "inference.base_url",
        )
    if inference.base_url and deployment.num_samplers > 1:
        raise ConfigError(
            "deployment.num_samplers cannot act: the sampler at inference.base_url is one. Remove one of the two.",
            "deployment.num_samplers",
            "inference.base_url",
        )
    if 0 < deployment.max_samplers < deployment.num_samplers or (deployment.max_samplers and inference.base_url):
        raise ConfigError(
            f"deployment.max_samplers = {deployment.max_samplers} cannot act beside "
            f"{'inference.base_url' if inference.base_url else f'num_samplers = {deployment.num_samplers}'}. Remove it"
            f"{'' if inference.base_url else ', or raise it'}.",
            "deployment.max_samplers",
            "inference.base_url" if inference.base_url else "deployment.num_samplers",
        )
    if deployment.host in ("0.0.0.0", "::"):
        raise ConfigError(
            f"deployment.host = {deployment.host} is every address of this machine, and none that others can reach it "
            "by: give the one that they shall use.",
            "deployment.host",
        )
    _check_ray(config)
    if deployment.weights == "files":
        return
    if inference.base_url and not is_loopback(urlsplit(inference.base_url).hostname or ""):
        raise ConfigError(
            'deployment.weights = "broadcast" reaches samplers on this host alone: take files for the one at '
            f"inference.base_url = {inference.base_url}.",
            "deployment.weights",
            "inference.base_url",
        )


def _check_ray(config: RLConfig) -> None:
    if config.deployment.type != "ray":
        for name in ("address", "cpus", "gpus_per_sampler"):
            if vars(config.deployment)[name] != DeploymentConfig.model_fields[name].default:
                raise ConfigError(
                    f'deployment.{name} cannot act without deployment.type = "ray". Remove it, or set that.',
                    f"deployment.{name}",
                    "deployment.type",
                )
        return
    if config.deployment.gpus_per_sampler > 1 and config.inference.base_url:
        raise ConfigError(
            "deployment.gpus_per_sampler cannot act: the sampler at inference.base_url has its own. Remove one of the "
            "two.",
            "deployment.gpus_per_sampler",
            "inference.base_url",
        )
    if config.deployment.gpus_per_sampler > 1 and config.inference.backend != "vllm":
        raise ConfigError(
            f"deployment.gpus_per_sampler = {config.deployment.gpus_per_sampler} cannot act: slimrl's own sampler has "
            'one GPU, and vLLM may have several. Remove it and raise num_samplers, or set inference.backend = "vllm".',
            "deployment.gpus_per_sampler",
            "inference.backend",
        )
    for name in ("trainer_gpu_ids", "inference_gpu_ids", "teacher_gpu_ids"):
        if vars(config)[name]:
            raise ConfigError(
                f"{name} names GPUs of this machine, and Ray gives each part GPUs of its own: remove it, and say how "
                "many there are by deployment.num_samplers and num_trainers.",
                name,
                "deployment.type",
            )


def _check_one_process(config: RLConfig) -> None:
    if config.inference.backend == "vllm" or config.inference.base_url:
        raise ConfigError(
            'deployment.type = "one-process" samples in that process: leave inference.backend and inference.base_url '
            'away, or set deployment.type = "processes".',
            "deployment.type",
            "inference.backend",
        )
    for name in settings_of_processes(config):
        raise ConfigError(
            f'{name} cannot act: deployment.type = "one-process" has no other parts. Remove one of the two.',
            name,
            "deployment.type",
        )


def settings_of_processes(config: RLConfig) -> list[str]:
    """The settings that were changed and act only where the parts are processes."""
    deployment = [name for name in DeploymentConfig.model_fields if name != "type"]
    sections = {"deployment": deployment, "inference": ["api_key_variable", "vllm_program", "port", "timeout_s"]}
    return [
        f"{section}.{name}"
        for section, names in sections.items()
        for name in names
        if vars(vars(config)[section])[name] != type(vars(config)[section]).model_fields[name].default
    ]
