"""A replica of the sampler on a device: sequences that decode side by side, a token a step.

All sequences of a step advance together. So a clock that counts steps determines the end of each, and the simulation
skips from one end or arrival to the next: an episode of 10,000 tokens costs as little as one of 10.
"""

import asyncio
import math
from collections import deque
from dataclasses import dataclass

from slimrl_tools.plan.pipeline.clock import MOMENT_S, now
from slimrl_tools.plan.pipeline.placement import Costs

EPSILON = 1e-6  # steps; sums of floats are not exact


class SharedDevice:
    """A device and the parties that compute on it, each with an event that wakes it when the speed changes.

    A single party has the full speed. Each of n parties has a share of `2 / (n * sharing)`, so two take `sharing` times
    as long. While the device is paused, nobody computes.
    """

    def __init__(self, sharing: float) -> None:
        self._sharing, self._is_paused = sharing, False
        self._parties: dict[asyncio.Event, None] = {}  # ordered, since runs must not differ

    @property
    def speed(self) -> float:
        """Return the share of the device's speed that each party has."""
        num = len(self._parties)
        return 0.0 if self._is_paused else 1.0 if num < 2 else 2.0 / (num * self._sharing)

    def enter(self, party: asyncio.Event) -> None:
        """Add a party."""
        if party not in self._parties:
            self._wake_all()
            self._parties[party] = None

    def leave(self, party: asyncio.Event) -> None:
        """Remove a party."""
        if party in self._parties:
            del self._parties[party]
            self._wake_all()

    def pause(self, is_paused: bool) -> None:
        """Stop all computing, or let it continue."""
        self._is_paused = is_paused
        self._wake_all()

    async def work(self, seconds: float, party: asyncio.Event) -> float:
        """Compute for `seconds` at full speed, or until the party is woken. Return the seconds of work done."""
        began, speed = now(), self.speed
        timer = asyncio.get_running_loop().call_later(seconds / speed, party.set) if speed else None
        await party.wait()
        party.clear()
        if timer:
            timer.cancel()
        return (now() - began) * speed

    async def compute(self, seconds: float) -> None:
        """Compute for `seconds` at full speed, longer beside other parties."""
        party = asyncio.Event()
        self.enter(party)
        while seconds > MOMENT_S:
            seconds -= await self.work(seconds, party)
        self.leave(party)

    def _wake_all(self) -> None:
        for party in self._parties:
            party.set()


@dataclass(slots=True, eq=False)
class _Reply:
    """A reply to sample: its tokens, the step of its last token, and a future for its completion."""

    read: int
    sampled: int
    done: "asyncio.Future[None]"
    end: float = 0.0


class Replica:
    """An engine with a number of slots on a device. `num_episodes` counts the episodes that the pool has sent to it."""

    def __init__(self, costs: Costs, slots: int, device: SharedDevice) -> None:
        self._costs, self._slots, self._device = costs, slots, device
        self._waiting: deque[_Reply] = deque()
        self._running: list[_Reply] = []
        self._clock = 0.0  # steps so far
        self._debt_s = self._added_s = 0.0  # work that keeps all sequences waiting: prefill, new weights
        self._wake = asyncio.Event()
        self._busy_s, self._since = 0.0, math.inf
        self._task = asyncio.create_task(self._run())
        self.num_episodes = self.num_open = self.tokens = 0

    @property
    def busy_s(self) -> float:
        """Return the seconds for which it has computed so far."""
        return self._busy_s + max(0.0, now() - self._since)

    async def sample(self, read: int, sampled: int) -> None:
        """Read and sample the given numbers of tokens."""
        reply = _Reply(read, sampled, asyncio.get_running_loop().create_future())
        self._waiting.append(reply)
        self._wake.set()
        self.num_open += 1
        try:
            await reply.done
        finally:
            self._wake.set()
            self.num_open -= 1

    def hold(self, seconds: float) -> None:
        """Do other work for `seconds`, such as loading weights. Sequences continue afterwards."""
        self._added_s += seconds
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._finish()
            await asyncio.sleep(MOMENT_S)  # a group arrives as one
            self._wake.clear()
            self._running = [reply for reply in self._running if not reply.done.done()]
            self._admit()
            steps_s = self._costs.decode_s(len(self._running))
            left = min((reply.end for reply in self._running), default=self._clock) - self._clock
            seconds = self._debt_s + left * steps_s
            if seconds <= EPSILON * steps_s:
                self._device.leave(self._wake)
                await self._wake.wait()
                continue
            self._device.enter(self._wake)
            self._since = now() if self._device.speed else math.inf
            work = await self._device.work(seconds, self._wake)
            self._busy_s, self._since = self.busy_s, math.inf
            paid = min(work, self._debt_s)
            self._debt_s -= paid
            self._clock += (work - paid) / steps_s if self._running else 0.0

    def _finish(self) -> None:
        for reply in self._running:
            if reply.end <= self._clock + EPSILON and not reply.done.done():
                self.tokens += reply.sampled
                reply.done.set_result(None)

    def _admit(self) -> None:
        read = 0
        while self._waiting and len(self._running) < self._slots:
            reply = self._waiting.popleft()
            if not reply.done.done():  # skip replies of cancelled episodes
                read += reply.read
                reply.end = math.ceil(self._clock - EPSILON) + reply.sampled  # it enters at the next step
                self._running.append(reply)
        self._debt_s += self._added_s + (self._costs.prefill_s(read) if read else 0.0)
        self._added_s = 0.0
