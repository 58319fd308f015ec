"""Starts the sampler of an `rl` run with separate processes: slimrl's server, or vLLM."""

import os

from slimrl.config.model import LoraConfig
from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.config.serve import ServeConfig
from slimrl.launch.placement import device_of, place
from slimrl.monitor.console import RunConsole
from slimrl_cluster.services.programs import free_port
from slimrl_cluster.services.ray_cluster import open_roster
from slimrl_cluster.services.vllm_sampler import run_vllm
from slimrl_serve.start import check_packages, serve, until_signal

MAX_QUEUE = 65536  # no real limit: the run's only client sends no more requests than its episodes need


def run_sampler_of_rl(resolved: Resolved[RLConfig]) -> int:
    """Run the `inference` command with a settings file of `rl`: serve the run's model to the orchestrator until a
    signal arrives. Raises UserError if the file selects slimrl's own server, and the packages of this server are not
    installed."""
    if resolved.config.inference.backend == "slimrl":
        check_packages()
    console = RunConsole()
    config = device_of(place(resolved.config, console.note, "inference"), "inference")
    roster = open_roster(config, "inference", console.note)
    with roster.reserve() as own:
        dtype: str = config.model.dtype
        if dtype == "auto":  # the trainer decides it, because the trainer sends the weights
            dtype = roster.await_part("trainer")["dtype"]

        def announce(address: str) -> None:
            own.announce({"address": address})

        if config.inference.backend == "vllm":
            with until_signal() as stopped:
                name = f"vllm-{own.name.rpartition('-')[2]}"
                address = config.deployment.host, config.inference.port or free_port(config.deployment.host)
                return run_vllm(config, name, dtype, address, stopped, announce)
        settings = ServeConfig(
            host=config.deployment.host,
            port=config.inference.port,
            api_key=os.environ.get(config.inference.api_key_variable, ""),
            context_len=config.seq_len,
            max_slots=config.inference.max_slots,
            max_queue=MAX_QUEUE,
            grace_s=0,
            # Make no adapter here: the trainer sends one, and the server merges it into the base model.
            model=config.model.model_copy(update={"dtype": dtype, "lora": LoraConfig()}),
        )
        return serve(settings, announce)
