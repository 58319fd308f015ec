"""The `orchestrator` command: play episodes on a server's model, and give batches to a trainer of another process."""

from pathlib import Path

from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.inference.remote_client import RemoteClient
from slimrl.inference.server_link import SamplerAddress
from slimrl.launch.parts import episode_limits
from slimrl.launch.stages import make_orchestrator
from slimrl.launch.tasksets import load_tasksets
from slimrl.models.load import load_chat
from slimrl.monitor.console import RunConsole
from slimrl.rollout.episode import RolloutContext
from slimrl.trainer.checkpoint import read_progress
from slimrl.transport.run_files import RunFiles


def run_orchestrator(resolved: Resolved[RLConfig], address: SamplerAddress) -> int:
    """Run the `orchestrator` command: a batch for each training step, from weights at most `max_async_level` older."""
    config, console = resolved.config, RunConsole()
    output_dir = Path(config.output_dir)
    files = RunFiles(output_dir, 600.0, console.note)
    chat = load_chat(config.model)
    client = RemoteClient(address, chat.stop_ids, config.seq_len)
    context = RolloutContext(
        client, chat, episode_limits(config.orchestrator, config.seq_len), config.inference.max_slots
    )
    tasksets = load_tasksets(config.orchestrator.env, config.orchestrator.episode_timeout_s)
    orchestrator = make_orchestrator(config, output_dir, tasksets, context, None, console)
    past = read_progress(output_dir) if config.resume else None
    orchestrator.restore(past.orchestrator_state if past else {})
    first = past.step if past else 0
    loaded = -1
    for step in range(first, config.max_steps):
        files.await_weights(max(first, step - config.max_async_level))
        if (newest := files.newest_version()) > loaded:
            client.update_weights(files.weights_path(newest), newest)
            loaded = newest
        files.send(step, orchestrator.collect(step))
        console.note(f"batch {step}, from weights {loaded}")
    return 0
