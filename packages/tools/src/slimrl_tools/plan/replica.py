"""Provides the parts of a simulation: the costs of work, a virtual clock for asyncio, and the replicas that sample."""

import asyncio
import math
import selectors
from collections import deque
from dataclasses import dataclass
from typing import Any

from slimrl_tools.plan.timing import Speeds
from slimrl_tools.plan.workload import Row

MOMENT_S = 1e-8  # simulated seconds; after a sleep of this length, all events of the same time have happened
EPSILON = 1e-6  # tolerance in steps, as sums of floats are not exact


@dataclass(frozen=True, slots=True)
class Recipe:
    """The sizes of a run's batches. `batch_size` and `group_size` count rollouts. A step samples at most
    `resample_factor` times `batch_size` rollouts. `pack_tokens` is the size of a training pack."""

    batch_size: int
    group_size: int
    resample_factor: int
    pack_tokens: int


@dataclass(frozen=True, slots=True)
class Costs:
    """The simulated time of each piece of work. The seconds in `speeds` are multiplied by the factor `sampling` or
    `training`.

    The transfer of new weights to one replica takes `weights_s`, and `weights_more_s` more for each doubling of the
    number of replicas. Replicas do not sample during this transfer. The transfer of a batch to the trainer takes
    `batch_s`. With several ranks, the exchange between them takes up to `gather_s` per pack on each rank.
    """

    speeds: Speeds
    sampling: float = 1.0
    training: float = 1.0
    weights_s: float = 0.0
    weights_more_s: float = 0.0
    batch_s: float = 0.0
    gather_s: float = 0.0
    source: str = ""

    def train_s(self, row: Row, recipe: Recipe, ranks: int) -> float:
        """Return the seconds of a training step on the slowest rank. The ranks share the packs. There are at least as
        many packs as ranks, unless there are fewer rollouts than ranks."""
        if not row.tokens:
            return 0.0
        packs = min(max(math.ceil(row.tokens / recipe.pack_tokens), ranks), recipe.batch_size)
        rounds = math.ceil(packs / ranks)
        each = self.speeds.row_s(row) / packs + self.speeds.pack
        exchanged = rounds * self.gather_s * (1 - 1 / ranks)
        return self.training * (rounds * each + self.speeds.update / ranks) + exchanged

    def transfer_s(self, num_samplers: int) -> float:
        """Return the seconds until new weights reach all replicas."""
        return self.weights_s + self.weights_more_s * math.log2(num_samplers)


class _Clock(selectors.SelectSelector):
    """A selector for asyncio that advances the simulated time `now` instead of waiting, so that no real time passes."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "the simulation waits for an event that never happens"
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass(slots=True, eq=False)
class _Reply:
    """A request for a reply that reads `read` tokens and samples `sampled` tokens. `end` is the decoding step of the
    last token. The future `done` is completed at this step."""

    read: int
    sampled: int
    done: "asyncio.Future[None]"
    end: float = 0.0


class Replica:
    """A simulated engine with `slots` slots on its own device. `num_episodes` is the number of its current episodes.

    All running sequences advance by one token per step. So a count of the steps determines the end of each sequence,
    and the simulation can jump to the next end or the next arrival of a request.
    """

    def __init__(self, costs: Costs, slots: int) -> None:
        self._speeds, self._factor, self._slots = costs.speeds, costs.sampling, slots
        self._waiting: deque[_Reply] = deque()
        self._running: list[_Reply] = []
        self._clock = 0.0  # decoding steps so far
        self._debt_s = 0.0  # seconds of work that delay all sequences: prefill, new weights
        self._wake = asyncio.Event()
        self._busy_s, self._since = 0.0, math.inf
        self._task = asyncio.create_task(self._run())
        self.num_episodes = self.num_open = self.tokens = 0

    @property
    def busy_s(self) -> float:
        """Return the seconds for which the replica has computed so far."""
        return self._busy_s + max(0.0, now() - self._since)

    async def sample(self, read: int, sampled: int) -> None:
        """Simulate a request that reads `read` tokens and samples `sampled` tokens."""
        reply = _Reply(read, sampled, asyncio.get_running_loop().create_future())
        self._waiting.append(reply)
        self._wake.set()
        self.num_open += 1
        try:
            await reply.done
        finally:
            self._wake.set()
            self.num_open -= 1

    def hold(self, seconds: float, computes: bool = True) -> None:
        """Delay all sequences by `seconds`. If `computes` is True, the replica works in this time, for example to load
        weights. Otherwise another part of the run uses its device."""
        self._debt_s += seconds
        self._busy_s -= 0.0 if computes else seconds
        self._wake.set()

    async def _run(self) -> None:
        while True:
            for reply in self._running:
                if reply.end <= self._clock + EPSILON and not reply.done.done():
                    self.tokens += reply.sampled
                    reply.done.set_result(None)
            await asyncio.sleep(MOMENT_S)  # until all requests of a group have arrived
            self._wake.clear()
            self._admit()
            step_s = self._factor * (self._speeds.decode_step + len(self._running) * self._speeds.decode_row)
            left = min((reply.end for reply in self._running), default=self._clock) - self._clock
            owed_s = self._debt_s
            if owed_s + left * step_s <= EPSILON * step_s:
                await self._wake.wait()
                continue
            self._since = now()
            timer = asyncio.get_running_loop().call_later(owed_s + left * step_s, self._wake.set)
            await self._wake.wait()
            timer.cancel()
            work = now() - self._since
            self._busy_s, self._since = self.busy_s, math.inf
            paid = min(work, owed_s)
            self._debt_s -= paid
            self._clock += (work - paid) / step_s if self._running else 0.0

    def _admit(self) -> None:
        """Start waiting replies in free slots. Replies of cancelled episodes are removed."""
        self._running, read = [reply for reply in self._running if not reply.done.done()], 0
        while self._waiting and len(self._running) < self._slots:
            reply = self._waiting.popleft()
            if not reply.done.done():
                read += reply.read
                reply.end = math.ceil(self._clock - EPSILON) + reply.sampled  # it starts at the next whole step
                self._running.append(reply)
        if read:  # a prefill reads all weights once more
            self._debt_s += self._factor * (self._speeds.decode_step + read * self._speeds.prefill)
