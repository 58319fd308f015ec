"""Starts the programs of a run on the nodes of a Ray cluster, which places them and reports lost nodes.

Each program is an actor with reserved resources (`ray_host.py`). Its log lies in the run's directory, which all nodes
see.
"""

import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from typing import Any, Self

from slimrl_cluster.services.programs import REFUSAL, End, Log, Needs
from slimrl_cluster.services.ray_cluster import NAMESPACE, connect, first_line, start_members
from slimrl_cluster.services.ray_host import ProgramHost, versions
from slimrl_cluster.transport.roster import Facts

STOP_S = 30.0  # seconds for a program to stop by itself
WITHOUT_NODE_S = 1.0  # seconds to stop a program that waits for a node, or is about to start
SAY_S = 30.0  # seconds of waiting before it is logged


class RayProgram:
    """One program on a node, or one rank of a trainer. `start` asks the actor to start the program, and returns a
    future of the process id and the address. If they do not arrive within `patience_s`, the program ends with the
    status of a refusal. `room` describes the awaited resources in messages."""

    def __init__(
        self,
        cluster: "RayPrograms",
        name: str,
        actor: Any,
        start: Callable[[], Any],
        room: str,
        patience_s: float = inf,
    ) -> None:
        self.name, self._cluster, self._ray, self._actor = name, cluster, cluster.ray, actor
        self.process, self._has_started = "waits for a node", False
        self.new_lines = Log(cluster.logs, name).new_lines
        self._end: End | None = None
        self._silence, self._patience_s = f"the {name} waits for {room}", patience_s
        self._ask, self._asked = start, start()
        self._began = self._said = time.monotonic()

    @property
    def end(self) -> End | None:
        """The program's end; None while it runs or waits for a node. Each read of this property also processes the
        node's answers."""
        if self._end is None:
            try:
                if self._ray.wait([self._asked], timeout=0)[0]:
                    self._take(self._ray.get(self._asked))
                else:
                    self._wait_on()
            except self._ray.exceptions.ActorUnavailableError:  # ask again until Ray knows whether the node is lost
                self._asked = self._ask()
            except Exception as error:  # also an error of Ray itself; without an end, the run would wait for ever
                self._end = self._loss(error)
        return self._end

    def stop(self) -> None:
        """Stop the program, if it is reachable, and free its resources."""
        if self._end is None:
            patience_s = STOP_S if self._has_started else WITHOUT_NODE_S
            try:
                end = self._ray.get(self._actor.stop.remote(), timeout=patience_s)
                self._end = end or End(None, f"the {self.name} was ended before it had started")
            except self._ray.exceptions.RayError as error:
                self._end = self._loss(error)
        self._ray.kill(self._actor)
        self._cluster.remove_member(self.name)

    def _take(self, answer: Any) -> None:
        if not self._has_started:
            pid, address = answer
            self.process, self._has_started = f"{pid} on {address}", True
            self._cluster.note(f"{self.name} is process {self.process}")
            self._silence = f"no word of the {self.name} ({self.process}); Ray looks whether its node is lost"
            self._ask = self._actor.poll.remote
        elif answer:
            self._end = answer
            return
        self._asked = self._ask()
        self._began = self._said = time.monotonic()

    def _wait_on(self) -> None:
        now = time.monotonic()
        waited = f"{self._silence}, for {now - self._began:.0f} s"
        if not self._has_started and now - self._began > self._patience_s:
            advice = f"This is {self._cluster.describe()}. Add nodes, or ask for less, and continue with `--resume`"
            self._end = End(REFUSAL, f"{waited} in vain (deployment.timeout_s). {advice}")
        elif now - self._said > SAY_S:
            self._said = now
            self._cluster.note(f"{waited} so far")

    def _loss(self, error: Exception) -> End:
        errors = self._ray.exceptions
        if isinstance(error, errors.RayTaskError) and not isinstance(error.cause, errors.RayError):
            return End(REFUSAL, f"the {self.name} cannot be started: {error.cause}")  # raised by the code on the node
        where = f" (process {self.process})" if self._has_started else ""
        return End(None, f"the {self.name}{where} was lost, with its node or with Ray's actor: {first_line(error)}")


class RayRanks:
    """The ranks of one trainer, treated as one program. Each rank has an actor. The program ends when a rank fails, or
    when all ranks have ended."""

    def __init__(self, name: str, ranks: Sequence[RayProgram], release: Callable[[], None]) -> None:
        self.name, self._ranks, self._release = name, ranks, release

    @property
    def end(self) -> End | None:
        """The end of a rank that failed, or, once all ranks have ended well, the end of the first rank; else None."""
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

    `address` is the cluster's address (`deployment.address`). `logs` is a directory that all nodes see. `environment`
    has the environment variables for all programs. `note` receives a line of text about each wait for a node. The
    trainer waits at most `timeout_s` seconds for free resources.
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
        self.logs, self._environment = logs.resolve(), {**environment, NAMESPACE: namespace}
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
        """Return the facts that the programs have announced, by name. Return an empty mapping if the cluster does not
        answer."""
        try:
            return dict(self.ray.get(self._members.all.remote(), timeout=WITHOUT_NODE_S))
        except self.ray.exceptions.RayError:
            return {}

    def remove_member(self, name: str) -> None:
        """Remove a program that has ended from the members."""
        self._members.remove.remote(name)

    def start(self, name: str, command: Sequence[str], needs: Needs) -> RayProgram:
        """Start a program on a node with free resources for its `needs`. Ray prefers a node without other programs of
        the run."""
        actor = self._host(needs, "SPREAD")
        start = self._start_of(actor, name, command)
        self._programs.append(program := RayProgram(self, name, actor, start, f"a node with {needs} free"))
        return program

    def start_ranks(self, name: str, command: Sequence[str], num: int, needs: Needs) -> RayRanks:
        """Start `num` ranks that connect to each other. Ray uses as few nodes as possible, and waits until there are
        free resources for all ranks."""
        bundle = {"CPU": needs.cpus, **({"GPU": needs.gpus} if needs.gpus else {})}
        group = self.ray.util.placement_group([bundle] * num, strategy="PACK")
        scheduling = self.ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        actors = [self._host(needs, scheduling(group, place)) for place in range(num)]
        room = f"room for {num} ranks, each with {needs}" if num > 1 else f"a node with {needs} free"
        ranks = []
        for rank, actor in enumerate(actors):
            own = f"{name}-{rank}" if rank else name
            start = self._start_of(actor, own, command, rank, num, actors[0])
            ranks.append(RayProgram(self, own, actor, start, room, self._timeout_s))
        program = RayRanks(name, ranks, lambda: self.ray.util.remove_placement_group(group))
        self._programs.append(program)
        return program

    def _host(self, needs: Needs, strategy: Any) -> Any:
        options = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "scheduling_strategy": strategy, "max_restarts": 0}
        words = str(self.logs), os.getcwd(), self._environment, needs.cpus < 1
        return self.ray.remote(ProgramHost).options(**options).remote(*words)

    def _start_of(
        self, actor: Any, name: str, command: Sequence[str], rank: int = 0, num: int = 1, first: Any = None
    ) -> Callable[[], Any]:
        """Return a function that asks an actor to start its program. `first` is the actor of rank 0."""
        return lambda: actor.start.remote(name, command, versions(), rank, num, first)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with ThreadPoolExecutor(max(1, len(self._programs))) as pool:
                list(pool.map(lambda program: program.stop(), self._programs))
        finally:
            self.ray.shutdown()
