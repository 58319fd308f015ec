"""Starts the programs of a run on the nodes of a Ray cluster, which places them and reports lost nodes.

Each program is an actor with reserved resources (`ray_host.py`). Unless a cluster requires tokens
(`RAY_AUTH_MODE=token`), everyone who reaches its ports can run programs on it, so the ports belong in a private
network.
"""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from slimrl.errors import UserError
from slimrl_cluster.services.programs import REFUSAL, End, Needs, rank_variables
from slimrl_cluster.services.ray_host import ProgramHost, versions

LOCAL = "local"  # the address for a cluster of this machine alone
CONNECT_S = 10.0
STOP_S = 30.0  # seconds for a program to stop by itself
WITHOUT_NODE_S = 1.0  # seconds to stop a program that waits for a node, or is about to start
POLL_S = 0.2
END_S = 5.0  # seconds to wait for the thread of a program after its actor was killed
SAY_S = 30.0  # seconds of waiting before it is logged


def import_ray() -> Any:
    """Import the package `ray`. Raises UserError if it is not installed."""
    # If `uv run` started this program, Ray would start each program by `uv run` in a new environment.
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


class RayProgram:
    """One program on some node, or one rank of several. A thread follows it until it ends."""

    def __init__(
        self, ray: Any, name: str, actor: Any, start: Callable[[], Any], waits_for: str, note: Callable[[str], None]
    ) -> None:
        self.name, self._ray, self._actor, self._note = name, ray, actor, note
        self.end: End | None = None
        self.members: Sequence[tuple[str, int]] = []
        self._address = ""
        self._lines: list[str] = []
        self._thread = threading.Thread(target=self._follow, args=(start, waits_for), name=name, daemon=True)
        self._thread.start()

    @property
    def process(self) -> str:
        """The program's process id and host, or a text that it waits for a node."""
        return ", ".join(f"{pid} on {self._address}" for _, pid in self.members) or "waits for a node"

    def new_lines(self, most: int = sys.maxsize) -> list[str]:
        """Return the newest lines since the last call, at most `most`."""
        lines = self._lines[:]
        del self._lines[: len(lines)]  # the thread may have added more in the meantime
        return lines[-most:]

    def stop(self) -> None:
        """Stop the program, if it is reachable, and free its resources."""
        if self.end is None:
            patience_s = STOP_S if self.members else WITHOUT_NODE_S
            try:
                end = self._ray.get(self._actor.stop.remote(), timeout=patience_s)
                self.end = end or End(None, f"the {self.name} was ended before it had started")
            except self._ray.exceptions.RayError as error:
                self.end = self._loss(error)
        self._ray.kill(self._actor)
        self._thread.join(END_S)  # the thread must not call Ray after Ray's shutdown

    def _follow(self, start: Callable[[], Any], waits_for: str) -> None:
        try:
            host, pid, self._address = self._ask(start, f"the {self.name} waits for {waits_for}")
            self.members = [(host, pid)]
            self._note(f"{self.name} is process {self.process}")
            silence = f"no word of the {self.name} ({self.process}); Ray looks whether its node is lost"
            end = None
            while end is None:
                end, lines = self._ask(self._actor.poll.remote, silence)
                self._lines += lines
            self.end = end
        except self._ray.exceptions.RayTaskError as error:  # an error of the code on the node
            self.end = End(REFUSAL, f"the {self.name} cannot be started: {error.cause}")
        except Exception as error:  # an error of Ray or of this thread: without `end`, the run would wait for ever
            self.end = self.end or self._loss(error)

    def _ask(self, ask: Callable[[], Any], wait: str) -> Any:
        """Call `ask`, and return the actor's answer. Log a long wait. Raises RayError if the actor is lost."""
        asked, since = ask(), time.monotonic()
        while True:
            if not self._ray.wait([asked], timeout=SAY_S)[0]:
                self._note(f"{wait}, for {time.monotonic() - since:.0f} s so far")
                continue
            try:
                return self._ray.get(asked)
            except self._ray.exceptions.ActorUnavailableError:  # Ray does not know yet whether the node is lost
                time.sleep(POLL_S)
                asked = ask()

    def _loss(self, error: Exception) -> End:
        where = f" (process {self.process})" if self.members else ""
        return End(None, f"the {self.name}{where} was lost, with its node or with Ray's actor: {_first_line(error)}")


class RayRanks:
    """The ranks of one trainer, each an actor. They are treated as one program. It ends when a rank fails, or when all
    ranks have ended."""

    def __init__(self, name: str, ranks: Sequence[RayProgram], release: Callable[[], None]) -> None:
        self.name, self._ranks, self._release = name, ranks, release

    @property
    def end(self) -> End | None:
        """The end of a rank that failed; the first rank's end once all have ended without failure."""
        ends = [rank.end for rank in self._ranks]
        failures = [end for end in ends if end and not end.is_good]
        # A rank that waits for a lost rank refuses to continue, so the lost rank is the cause.
        failures.sort(key=lambda end: end.has_refused)
        if failures:
            return failures[0]
        return ends[0] if all(ends) else None

    @property
    def members(self) -> Sequence[tuple[str, int]]:
        """The host and the process id of each rank that has started."""
        return [member for rank in self._ranks for member in rank.members]

    @property
    def process(self) -> str:
        """The ranks' processes and hosts."""
        return "; ".join(rank.process for rank in self._ranks)

    def new_lines(self, most: int = sys.maxsize) -> list[str]:
        """Return the first rank's lines. Once a rank has failed, add the lines of the other ranks."""
        first, *others = self._ranks
        lines = first.new_lines(most)
        if self.end and not self.end.is_good:
            for rank in others:
                lines += [f"{rank.name}: {line}" for line in rank.new_lines(most)]
        return lines

    def stop(self) -> None:
        """Stop all ranks, and free their resources."""
        for rank in self._ranks:
            rank.stop()
        self._release()


class RayPrograms:
    """Context manager that starts programs on a cluster, and stops them on exit.

    `address` is the cluster's address (`deployment.address`), and `logs` is a directory that all nodes see. The
    variables in `environment` are passed to all programs. `note` receives a line about each wait for a node.
    """

    def __init__(
        self,
        address: str,
        logs: Path,
        environment: Mapping[str, str],
        note: Callable[[str], None],
        timeout_s: float,
    ) -> None:
        self._ray, self._note, self._timeout_s = connect(address), note, timeout_s
        self._logs, self._environment = str(logs.resolve()), dict(environment)
        self._programs: list[RayProgram | RayRanks] = []

    @property
    def num_gpus(self) -> int:
        """The number of GPUs of the cluster."""
        return int(self._ray.cluster_resources().get("GPU", 0))

    def describe(self) -> str:
        """Describe the cluster in words."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        whole = self._ray.cluster_resources()
        parts = [f"{whole.get('CPU', 0):g} CPUs", *([f"{self.num_gpus} GPUs"] if self.num_gpus else [])]
        return f"a Ray cluster of {len(nodes)} node{'s' if len(nodes) != 1 else ''} with {' and '.join(parts)}"

    def start(self, name: str, command: Sequence[str], needs: Needs) -> RayProgram:
        """Start a program on a node with the resources that it needs, if possible on another node than the run's other
        programs."""
        program = self._run(name, command, self._host(needs, "SPREAD"), needs, {})
        self._programs.append(program)
        return program

    def start_ranks(self, name: str, command: Sequence[str], num: int, needs: Needs) -> RayRanks:
        """Start `num` ranks that connect to each other, on as few nodes as possible. Waits until the cluster has
        resources for all ranks at once. Raises UserError after the time limit."""
        group = self._ray.util.placement_group([_bundle(needs)] * num, strategy="PACK")
        what = f"{num} ranks of the {name}, each with {needs}"
        try:
            self._await(group.ready(), f"room for {what}")
            scheduling = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
            actors = [self._host(needs, scheduling(group, place)) for place in range(num)]
            address, port = self._await(actors[0].meeting_place.remote(), f"the first of {what}")
        except BaseException:
            self._ray.util.remove_placement_group(group)
            raise
        ranks = [
            self._run(
                f"{name}-{rank}" if rank else name, command, actor, needs, rank_variables(rank, num, address, port)
            )
            for rank, actor in enumerate(actors)
        ]
        program = RayRanks(name, ranks, lambda: self._ray.util.remove_placement_group(group))
        self._programs.append(program)
        return program

    def _host(self, needs: Needs, strategy: Any) -> Any:
        """Create an actor that reserves resources on a node, as soon as a node has them free."""
        options = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "scheduling_strategy": strategy, "max_restarts": 0}
        told = self._logs, os.getcwd(), self._environment, needs.cpus < 1
        return self._ray.remote(ProgramHost).options(**options).remote(*told)

    def _run(
        self, name: str, command: Sequence[str], actor: Any, needs: Needs, variables: Mapping[str, str]
    ) -> RayProgram:
        def start() -> Any:
            return actor.start.remote(name, command, variables, versions())

        return RayProgram(self._ray, name, actor, start, f"a node with {needs} free", self._note)

    def _await(self, asked: Any, what: str) -> Any:
        """Wait for the Ray object `asked`, and return its value. A long wait is logged. Raises UserError after
        `timeout_s` seconds. `what` names the object in the log and the error."""
        began = said = time.monotonic()
        while not self._ray.wait([asked], timeout=POLL_S)[0]:
            now = time.monotonic()
            if now - began > self._timeout_s:
                raise UserError(
                    f"waited {now - began:.0f} s in vain for {what} (deployment.timeout_s): this is "
                    f"{self.describe()}. Add nodes, or ask for less, and continue with `--resume`."
                )
            if now - said > SAY_S:
                said = now
                self._note(f"waiting for {what}, for {now - began:.0f} s so far; this is {self.describe()}")
        try:
            return self._ray.get(asked)
        except self._ray.exceptions.RayError as error:
            raise UserError(f"{what}: {_first_line(error)}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = [program for program in self._programs if program.end is None]
        with ThreadPoolExecutor(max(1, len(running))) as pool:
            for stopping in [pool.submit(program.stop) for program in running]:
                stopping.result()
        self._ray.shutdown()


def connect(address: str) -> Any:
    """Connect this process to a cluster and return the package `ray`. Raises UserError if no cluster answers."""
    ray = import_ray()
    _check_port(address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address == LOCAL:
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise UserError(
            f"no Ray cluster can be used at deployment.address = {address} ({_first_line(error)}). Start one by `ray "
            "start --head`, and on each other machine by `ray start --address HEAD:6379`; or give "
            f"`--deployment.address {LOCAL}` for this machine alone. Where the cluster wants a token, set "
            "RAY_AUTH_MODE=token here, too."
        ) from error
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


def _bundle(needs: Needs) -> dict[str, float]:
    return {"CPU": needs.cpus, **({"GPU": needs.gpus} if needs.gpus else {})}


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
