"""Where the parts of an `rl` run are: in this process, or where a deployment has them (`slimrl.deployments`)."""

from collections.abc import Callable

from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.launch.tasksets import drop_made
from slimrl.plugins import DEPLOYMENTS, Deployment, call, load

HERE = ("auto", "one-process")
WHAT = "the deployment"


def run_rl(resolved: Resolved[RLConfig]) -> int:
    """Run the `rl` command where its settings place it. Returns the exit status. Raises UserError."""
    if resolved.config.deployment.type in HERE:
        status: int = call("slimrl.commands.rl:run_rl", resolved)
        return status
    drop_made()
    return int(call(find(resolved.config.deployment.type).run, resolved))


def find(name: str) -> Deployment:
    """The deployment of a name. Raises UserError if it is not installed."""
    found: Deployment = load(DEPLOYMENTS, name, WHAT)
    return found


def part_of(name: str) -> Callable[[Resolved[RLConfig]], int]:
    """A function that runs a part of an `rl` run. Raises UserError if no deployment is installed."""
    place = find("processes").parts[name]
    return lambda resolved: int(call(place, resolved))
