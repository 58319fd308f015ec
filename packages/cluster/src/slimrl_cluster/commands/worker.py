"""The `worker` command: a part of an `rl` run that plays environments for its orchestrator, on any machine."""

import os
import signal
import threading
from pathlib import Path

from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl_cluster.rollout.host import WorkerHost
from slimrl_cluster.transport.roster import Roster


def run_worker_of_rl(resolved: Resolved[RLConfig]) -> int:
    """Run the `worker` command: start worker processes for the run's orchestrator, until SIGTERM or Ctrl-C."""
    config = resolved.config
    name, address = config.inference.api_key_variable, config.deployment.host
    key = os.environ.get(name, "")
    if not key:
        raise UserError(
            f"whoever reaches {address}, and be it another user of this machine, could run programs here as you: set "
            f"the variable {name} to a key, the same for all parts of the run."
        )
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stopped.set())
    roster = Roster(Path(config.output_dir))
    try:
        host = WorkerHost(address, key)
    except OSError as error:
        raise UserError(
            f"cannot listen at deployment.host = {address} ({error.strerror or error}): name one of this machine."
        ) from None
    with roster.reserve("worker") as entry:
        thread = threading.Thread(target=host.serve, name="host", daemon=True)
        thread.start()
        roster.announce(entry, {"address": host.address})
        print(f"plays environments at {host.address}", flush=True)
        stopped.wait()
        host.close()
    return 0
