"""Where the worker processes of a run's environments are started: at hosts on any of its machines."""

from os import environ

from slimrl.config.run import RLConfig
from slimrl.rollout.worker.program import Start
from slimrl_cluster.rollout.remote import start_at
from slimrl_cluster.transport.run_files import RunFiles

PATIENCE_S = 120.0  # for a host to come in the place of one that was lost


def worker_starts(config: RLConfig, files: RunFiles) -> list[Start]:
    """What starts a worker process at each of the run's hosts; empty where there are none. Raises UserError if none
    comes."""
    num = config.deployment.num_workers
    if num:
        files.await_part("worker")

    def finder(number: int) -> Start:
        def find() -> str:
            """The address of the host of this number, or of one of those that are there."""
            addresses = [facts["address"] for facts in files.roster.members("worker").values()]
            return addresses[number % len(addresses)] if addresses else ""

        return start_at(find, environ.get(config.inference.api_key_variable, ""), PATIENCE_S)

    return [finder(number) for number in range(num)]
