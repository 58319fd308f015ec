"""Rules of `[deployment]`, the parts of a run and their connections, and of `[inference]`, the sampler."""

from urllib.parse import urlsplit

from slimrl.config.checks.faults import Faults, find_changed, idle
from slimrl.config.deployment import DeploymentConfig
from slimrl.config.rollout import InferenceConfig
from slimrl.config.run import RLConfig
from slimrl.io.urls import is_http_url, is_loopback

OWN_ENGINE = ("lookup_tokens", "quantization")  # for slimrl's engine only; vLLM and a running server have other flags
# Settings that have an effect only if the parts are processes.
OF_PROCESSES = {
    "deployment": [name for name in DeploymentConfig.model_fields if name != "type"],
    "inference": ["api_key_variable", "vllm_program", "port", "timeout_s"],
}


def deployment_faults(config: RLConfig) -> Faults:
    """Yield the conflicts between the settings of a run's parts."""
    deployment = config.deployment
    if deployment.type == "one-process":
        yield from idle(config.inference, "inference", ["backend", "base_url"], "<deployment.type=> samples by itself")
        for name in settings_of_processes(config):
            yield f"<{name}=> cannot act: <deployment.type=> has no other parts. Remove one of the two."
    if config.inference.base_url:
        yield from _outside_sampler_faults(config)
    if deployment.host in ("0.0.0.0", "::"):
        yield "<deployment.host=> is no address that others can reach: set the one that they shall use."
    yield from _ray_faults(config)


def _outside_sampler_faults(config: RLConfig) -> Faults:
    """Yield a fault for each setting that does not apply to the sampler at `inference.base_url`, because the run did
    not start that sampler."""
    sampler = "the sampler at <inference.base_url=>"
    yield from idle(
        config.warmup, "warmup", ["max_steps"], f"{sampler} may have other weights; warm up by `slimrl sft`"
    )
    yield from idle(config, "", ["inference_gpu_ids"], f"{sampler} has the device that it was started with")
    numbers = ["num_samplers", "gpus_per_sampler"]
    yield from idle(config.deployment, "deployment", numbers, f"{sampler} is one, by itself")
    if not is_loopback(urlsplit(config.inference.base_url).hostname or ""):
        why = f"a broadcast reaches samplers on this host alone, and not {sampler.removeprefix('the ')}"
        yield from idle(config.deployment, "deployment", ["weights"], why)


def _ray_faults(config: RLConfig) -> Faults:
    """Without Ray, yield a fault for each changed setting of Ray. With Ray, yield a fault for each setting that Ray
    decides."""
    if config.deployment.type != "ray":
        of_ray = ["address", "cpus", "gpus_per_sampler"]
        yield from idle(config.deployment, "deployment", of_ray, 'it is for <deployment.type> "ray"')
        return
    if config.inference.backend != "vllm":
        why = 'slimrl\'s own sampler has one GPU, and <inference.backend> "vllm" may have several'
        yield from idle(config.deployment, "deployment", ["gpus_per_sampler"], why)
    gpus = ["trainer_gpu_ids", "inference_gpu_ids", "teacher_gpu_ids"]
    why = (
        "with <deployment.type=> each part has GPUs of its own, as many as deployment.num_samplers and num_trainers say"
    )
    yield from idle(config, "", gpus, why)


def settings_of_processes(config: RLConfig) -> list[str]:
    """Return the changed settings that have an effect only if the parts are processes."""
    return [
        f"{section}.{name}"
        for section, names in OF_PROCESSES.items()
        for name in find_changed(vars(config)[section], names)
    ]


def sampler_faults(config: InferenceConfig) -> Faults:
    """Yield a fault for each changed setting that the chosen sampler ignores, and for an invalid `base_url`."""
    if config.base_url:
        if not (is_http_url(config.base_url) and urlsplit(config.base_url).path in ("", "/")):
            yield "<inference.base_url=>: expected an address as http://localhost:8000, without a path."
        why = "the sampler at <inference.base_url> runs already, and it is set where that server is started"
        unread = ["vllm_program", *OWN_ENGINE, "port"]
    elif config.backend == "vllm":
        why = "only the engine of slimrl reads it, not that of <inference.backend=>, and vLLM has no key"
        unread = [*OWN_ENGINE, "api_key_variable"]
    else:
        why = 'nothing but <inference.backend> "vllm" starts vLLM'
        unread = ["vllm_program"]
    yield from idle(config, "inference", unread, why)
