"""The places where the worker processes of a run's environments are started: hosts on any of its machines."""

from os import environ

from slimrl.config.run import RLConfig
from slimrl.rollout.worker.program import Start
from slimrl_cluster.rollout.remote import start_at
from slimrl_cluster.transport.run_files import RunFiles

PATIENCE_S = 120.0  # seconds to wait for a host that replaces a lost one


def worker_starts(config: RLConfig, files: RunFiles) -> list[Start]:
    """Return a function per host of the run that starts a worker process there; empty without hosts. Raises UserError
    if no host starts."""
    num = config.deployment.num_workers
    if num:
        files.await_part("worker")

    def finder(number: int) -> Start:
        def find() -> str:
            """Return the address of this host or, if there are fewer, of another one; empty without hosts."""
            addresses = [facts["address"] for facts in files.roster.members("worker").values()]
            return addresses[number % len(addresses)] if addresses else ""

        return start_at(find, environ.get(config.inference.api_key_variable, ""), PATIENCE_S)

    return [finder(number) for number in range(num)]
