"""Starts the programs of a run on the nodes of a Ray cluster, which places them and reports lost nodes.

Each program is an actor with reserved resources (`ray_host.py`).
"""

import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from slimrl.errors import UserError
from slimrl_cluster.services.programs import REFUSAL, End, Needs
from slimrl_cluster.services.ray_cluster import NAMESPACE, connect, first_line, start_members
from slimrl_cluster.services.ray_host import ProgramHost, versions
from slimrl_cluster.transport.roster import Facts

STOP_S = 30.0  # seconds for a program to stop by itself
WITHOUT_NODE_S = 1.0  # seconds to stop a program that waits for a node, or is about to start
POLL_S = 0.2
END_S = 5.0  # seconds to wait for the thread of a program after its actor was killed
SAY_S = 30.0  # seconds of waiting before it is logged


class RayProgram:
    """One program on some node, or one rank of several. A thread follows it until it ends."""

    def __init__(self, cluster: "RayPrograms", name: str, actor: Any, start: Callable[[], Any], needs: Needs) -> None:
        self.name, self._cluster, self._ray, self._actor = name, cluster, cluster.ray, actor
        self.end: End | None = None
        self.process = "waits for a node"
        self._has_started = False
        self._lines: list[str] = []
        wait = f"the {name} waits for a node with {needs} free"
        self._thread = threading.Thread(target=self._follow, args=(start, wait), name=name, daemon=True)
        self._thread.start()

    def new_lines(self, most: int = sys.maxsize) -> list[str]:
        """Return the newest lines since the last call, at most `most`."""
        lines = self._lines[:]
        del self._lines[: len(lines)]  # the thread may have added more in the meantime
        return lines[-most:]

    def stop(self) -> None:
        """Stop the program, if it is reachable, and free its resources."""
        if self.end is None:
            patience_s = STOP_S if self._has_started else WITHOUT_NODE_S
            try:
                end = self._ray.get(self._actor.stop.remote(), timeout=patience_s)
                self.end = end or End(None, f"the {self.name} was ended before it had started")
            except self._ray.exceptions.RayError as error:
                self.end = self._loss(error)
        self._ray.kill(self._actor)
        self._thread.join(END_S)  # it must not call Ray after its shutdown
        self._cluster.remove_member(self.name)

    def _follow(self, start: Callable[[], Any], wait: str) -> None:
        try:
            pid, address = self._cluster.wait(start, wait)
            self.process, self._has_started = f"{pid} on {address}", True
            self._cluster.note(f"{self.name} is process {self.process}")
            silence = f"no word of the {self.name} ({self.process}); Ray looks whether its node is lost"
            end = None
            while end is None:
                end, lines = self._cluster.wait(self._actor.poll.remote, silence)
                self._lines += lines
            self.end = end
        except self._ray.exceptions.RayTaskError as error:  # an error of the code on the node
            self.end = End(REFUSAL, f"the {self.name} cannot be started: {error.cause}")
        except Exception as error:  # an error of Ray or of this thread: without `end`, the run would wait for ever
            self.end = self.end or self._loss(error)

    def _loss(self, error: Exception) -> End:
        where = f" (process {self.process})" if self._has_started else ""
        return End(None, f"the {self.name}{where} was lost, with its node or with Ray's actor: {first_line(error)}")


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

    `address` is the cluster's (`deployment.address`), `logs` a directory that all nodes see, and `environment` is
    passed to all programs. `note` receives a line about each wait for a node. The trainer's ranks wait `timeout_s` for
    each other.
    """

    def __init__(
        self,
        address: str,
        logs: Path,
        environment: Mapping[str, str],
        note: Callable[[str], None],
        timeout_s: float,
    ) -> None:
        namespace = f"slimrl-{uuid.uuid4().hex}"
        self.ray, self.note, self._timeout_s = connect(address, namespace), note, timeout_s
        self._members = start_members(self.ray)
        self._logs, self._environment = str(logs.resolve()), {**environment, NAMESPACE: namespace}
        self._programs: list[RayProgram | RayRanks] = []

    @property
    def num_gpus(self) -> int:
        """The number of GPUs of the cluster."""
        return int(self.ray.cluster_resources().get("GPU", 0))

    def describe(self) -> str:
        """Describe the cluster in words."""
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        whole = self.ray.cluster_resources()
        parts = [f"{whole.get('CPU', 0):g} CPUs", *([f"{self.num_gpus} GPUs"] if self.num_gpus else [])]
        return f"a Ray cluster of {len(nodes)} node{'s' if len(nodes) != 1 else ''} with {' and '.join(parts)}"

    def members(self) -> Mapping[str, Facts]:
        """Return the facts that the programs have announced, by their names; none if the cluster does not answer."""
        try:
            return dict(self.ray.get(self._members.all.remote(), timeout=WITHOUT_NODE_S))
        except self.ray.exceptions.RayError:
            return {}

    def remove_member(self, name: str) -> None:
        """Remove a program that has ended."""
        self._members.remove.remote(name)

    def start(self, name: str, command: Sequence[str], needs: Needs) -> RayProgram:
        """Start a program on a node with the resources that it needs, if possible on another node than the run's other
        programs."""
        self._programs.append(program := self._run(name, command, self._host(needs, "SPREAD"), needs))
        return program

    def start_ranks(self, name: str, command: Sequence[str], num: int, needs: Needs) -> RayRanks:
        """Start ranks that connect to each other, on as few nodes as possible. Waits until there is room for all of
        them at once. Raises UserError if none exists in time."""
        bundle = {"CPU": needs.cpus, **({"GPU": needs.gpus} if needs.gpus else {})}
        group = self.ray.util.placement_group([bundle] * num, strategy="PACK")
        what = f"{num} ranks of the {name}, each with {needs}"
        try:
            self.wait(group.ready, f"waiting for room for {what}", self._timeout_s)
            scheduling = self.ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
            actors = [self._host(needs, scheduling(group, place)) for place in range(num)]
            meet = actors[0].meeting_place.remote
            address, port = self.wait(meet, f"waiting for the first of {what}", self._timeout_s)
        except BaseException as error:
            self.ray.util.remove_placement_group(group)
            if isinstance(error, self.ray.exceptions.RayError):
                raise UserError(f"{what}: {first_line(error)}") from error
            raise
        ranks = [
            self._run(f"{name}-{rank}" if rank else name, command, actor, needs, _torchrun(rank, num, address, port))
            for rank, actor in enumerate(actors)
        ]
        program = RayRanks(name, ranks, lambda: self.ray.util.remove_placement_group(group))
        self._programs.append(program)
        return program

    def wait(self, ask: Callable[[], Any], what: str, timeout_s: float = float("inf")) -> Any:
        """Return the answer of an actor or of the cluster, and log a long wait. Raises RayError if the actor is lost,
        and UserError after the time limit."""
        asked, began = ask(), time.monotonic()
        while True:
            if not self.ray.wait([asked], timeout=min(SAY_S, timeout_s))[0]:
                waited_s = time.monotonic() - began
                if waited_s >= timeout_s:
                    raise UserError(
                        f"{what}, for {waited_s:.0f} s in vain (deployment.timeout_s): this is {self.describe()}. Add "
                        "nodes, or ask for less, and continue with `--resume`."
                    )
                self.note(f"{what}, for {waited_s:.0f} s so far")
                continue
            try:
                return self.ray.get(asked)
            except self.ray.exceptions.ActorUnavailableError:  # until Ray knows whether its node is lost
                time.sleep(POLL_S)
                asked = ask()

    def _host(self, needs: Needs, strategy: Any) -> Any:
        """Create an actor that reserves resources on a node, as soon as a node has them free."""
        options = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "scheduling_strategy": strategy, "max_restarts": 0}
        words = self._logs, os.getcwd(), self._environment, needs.cpus < 1
        return self.ray.remote(ProgramHost).options(**options).remote(*words)

    def _run(
        self, name: str, command: Sequence[str], actor: Any, needs: Needs, variables: Mapping[str, str] | None = None
    ) -> RayProgram:
        def start() -> Any:
            return actor.start.remote(name, command, variables or {}, versions())

        return RayProgram(self, name, actor, start, needs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ThreadPoolExecutor(max(1, len(self._programs))) as pool:
            list(pool.map(lambda program: program.stop(), self._programs))
        self.ray.shutdown()


def _torchrun(rank: int, num: int, address: str, port: int) -> Mapping[str, str]:
    """Return the environment variables, torchrun's, by which one of `num` ranks finds the others. Each rank has its own
    machine, or is alone on its GPU."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(num),
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": f"slimrl-{os.getpid()}",
    }
