"""Connects to a Ray cluster, and finds the members of a run there: they announce themselves to a named actor.

Unless a cluster requires tokens (`RAY_AUTH_MODE=token`), everyone who reaches its ports can run programs on it. So the
ports must be in a private network.
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from slimrl.config.deployment import Part
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl_cluster.transport.roster import Facts, Place, Roster

LOCAL = "local"  # the address for a cluster of this machine alone
CONNECT_S = 10.0
ANSWER_S = 60.0  # seconds for the actor of the members to answer
POLL_S = 0.5
# These environment variables give a program the address of its cluster, the namespace of its run, and its name.
RAY_ADDRESS, NAMESPACE, PROGRAM = "RAY_ADDRESS", "NAMESPACE_OF_SLIMRL", "PROGRAM_OF_SLIMRL"
MEMBERS = "members"  # the name of the actor


def connect(address: str, namespace: str | None = None) -> Any:
    """Connect this process to a cluster, unless it is connected already. Return the package `ray`. Raises UserError if
    the package is missing, or if no cluster answers."""
    ray = import_ray()
    if ray.is_initialized():
        return ray
    _check_port(address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "namespace": namespace}
    if address == LOCAL:
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise UserError(
            f"no Ray cluster can be used at deployment.address = {address} ({first_line(error)}). Start one by `ray "
            "start --head`, and on each other machine by `ray start --address HEAD:6379`; or give "
            f"`--deployment.address {LOCAL}` for this machine alone. Where the cluster wants a token, set "
            "RAY_AUTH_MODE=token here, too."
        ) from error
    return ray


def import_ray() -> Any:
    """Import the package `ray` and return it. Raises UserError if it is not installed."""
    # Without this setting, if `uv run` started this program, Ray would start each program with `uv run` in a new Python
    # environment.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise UserError(
            'deployment.type = "ray" needs the package `ray`, on all nodes: `pip install "slimrl[ray]"`, or `uv sync '
            "--extra ray --extra server` in a checkout."
        ) from None
    return ray


def _check_port(address: str) -> None:
    """Raise UserError if nobody listens at `host:port`. Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except OSError as error:
        raise UserError(
            f"nobody listens at deployment.address = {address} ({error.strerror or error}). Start Ray there by `ray "
            f"start --head`, correct the address, or give `--deployment.address {LOCAL}` for this machine alone."
        ) from error


def first_line(error: Exception) -> str:
    """Return the first line of an error's text that is not empty, else the name of its type."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]


class Members:
    """A Ray actor that has the list of a run's members. The `rl` process removes ended programs from the list."""

    def __init__(self) -> None:
        self._facts: dict[str, Facts] = {}

    def announce(self, name: str, facts: Facts) -> None:
        self._facts[name] = facts

    def remove(self, name: str) -> None:
        self._facts.pop(name, None)

    def all(self) -> Mapping[str, Facts]:
        return self._facts


def start_members(ray: Any) -> Any:
    """Start the actor `Members` on the node of this process. The actor ends with this process."""
    node = ray.get_runtime_context().get_node_id()
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(Members).options(name=MEMBERS, num_cpus=0, scheduling_strategy=here).remote()


class RayRoster(Roster):
    """A roster for the parts of a run on a Ray cluster. It asks the actor `Members` and needs no locks, because `rl`
    starts each part only once."""

    @cached_property
    def _ray(self) -> Any:
        on_sigterm = signal.getsignal(signal.SIGTERM)
        ray = connect(os.environ[RAY_ADDRESS], os.environ[NAMESPACE])
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray replaces it
        return ray

    @cached_property
    def _actor(self) -> Any:
        return self._ray.get_actor(MEMBERS)

    @contextmanager
    def reserve(self, patience_s: float = 0.0) -> Iterator[Place]:
        """Context manager: yield the place of this program, without a lock; `patience_s` is ignored. Raises UserError
        if the cluster does not answer. Only the main thread calls this."""
        name, actor = os.environ[PROGRAM], self._actor
        yield Place(name, lambda facts: self._ask(actor.announce, name, {**self._facts(), **facts}))

    def members(self, part: Part) -> dict[str, Facts]:
        found = self._ask(self._actor.all)
        return {name: facts for name, facts in found.items() if facts["part"] == part}

    def _ask(self, method: Any, *words: Any) -> Any:
        deadline, errors = time.monotonic() + ANSWER_S, self._ray.exceptions
        while True:
            try:
                return self._ray.get(method.remote(*words), timeout=ANSWER_S)
            except errors.RayError as error:  # the actor's node may be unreachable for a moment
                if isinstance(error, errors.ActorDiedError) or time.monotonic() > deadline:
                    raise UserError(f"the actor of the run's members does not answer: {first_line(error)}.") from error
            time.sleep(POLL_S)


def open_roster(config: RLConfig, own: Part, note: Callable[[str], None]) -> Roster:
    """Return the roster of the run. This process is the part `own`. If `rl` has started this process on a Ray cluster,
    the roster uses the cluster, else files in the run's directory."""
    of_run = RunDir(Path(config.output_dir)), own, config.deployment.timeout_s, note
    # Do not check `deployment.type`, because it is "processes" in the settings of each part.
    return RayRoster(*of_run) if NAMESPACE in os.environ else Roster(*of_run)
