"""A replica of the sampler: sequences that decode side by side, a token a step, and enter and leave between steps.

All sequences of a step advance together. So a clock that counts steps tells when each of them ends, and nothing has to
happen in the model between two ends or arrivals: an episode of 10,000 tokens costs as little as one of 10.
"""

import heapq
import itertools
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from slimrl_tools.plan.pipeline.device import SharedDevice
from slimrl_tools.plan.pipeline.placement import Costs

EPSILON = 1e-6  # of a step: sums of floats are not exact


@dataclass(slots=True, eq=False)
class SampleRequest:
    """A reply to sample: tokens to read first, tokens to sample, and the event of its end."""

    read: int
    sampled: int
    done: Any
    is_cancelled: bool = False


@dataclass(slots=True)
class ReplicaTotals:
    """What a replica has done: seconds in which it computed, steps, tokens, and the sequences of all steps together."""

    busy_s: float = 0.0
    steps: float = 0.0
    tokens: int = 0
    read: int = 0
    sequences: float = field(default=0.0)


class Replica:
    """An engine with so many slots on a device."""

    def __init__(self, env: Any, costs: Costs, slots: int, device: SharedDevice) -> None:
        self._env, self._costs, self._slots, self._device = env, costs, slots, device
        self._waiting: deque[SampleRequest] = deque()
        self._running: list[tuple[float, int, SampleRequest]] = []  # a heap, by the step of the end
        self._num_running = 0
        self._numbers = itertools.count()
        self._clock = 0.0  # steps so far
        self._debt_s = 0.0  # of work that keeps all sequences waiting: prefill, new weights
        self._since = 0.0
        self._timer = 0
        self._is_paused = self._is_woken = False
        self.totals = ReplicaTotals()

    @property
    def num_open(self) -> int:
        """The requests that are not answered yet."""
        return self._num_running + len(self._waiting)

    def submit(self, read: int, sampled: int) -> SampleRequest:
        """Ask for a reply."""
        request = SampleRequest(read, sampled, self._env.event())
        self._waiting.append(request)
        self._wake()
        return request

    def cancel(self, request: SampleRequest) -> None:
        """Give up a request that is not answered yet."""
        if request.is_cancelled or request.done.triggered:
            return
        request.is_cancelled = True
        if request in self._waiting:
            self._waiting.remove(request)
        else:
            self.settle()
            self._num_running -= 1  # its place in the heap is skipped when it is due
        self._wake()

    def hold(self, seconds: float) -> None:
        """Do something else for so many seconds of work, such as to load weights. Sequences go on afterwards."""
        self.settle()
        self._debt_s += seconds
        self._wake()

    def pause(self) -> None:
        """Do no step from now on."""
        self.settle()
        self._is_paused = True
        self._device.leave(self)
        self._timer += 1

    def resume(self) -> None:
        """Go on after a `pause`."""
        self._since, self._is_paused = self._env.now, False
        self._wake()

    def settle(self) -> None:
        """Note how far the sequences are."""
        elapsed = self._env.now - self._since
        self._since = self._env.now
        if self._is_paused or elapsed <= 0 or not (self._num_running or self._debt_s):
            return
        self.totals.busy_s += elapsed
        work = elapsed * self._device.speed
        paid = min(work, self._debt_s)
        self._debt_s -= paid
        if self._num_running:
            steps = (work - paid) / self._costs.decode_s(self._num_running)
            self._clock += steps
            self.totals.steps += steps
            self.totals.sequences += steps * self._num_running

    def reschedule(self) -> None:
        """Wake up at the next end of a sequence, or of what keeps them waiting."""
        self._timer += 1
        if self._is_paused:
            return
        while self._running and self._running[0][2].is_cancelled:
            heapq.heappop(self._running)
        seconds = self._debt_s
        if self._running:
            seconds += (self._running[0][0] - self._clock) * self._costs.decode_s(self._num_running)
        if self._running or self._debt_s:
            timer = self._timer
            timeout = self._env.timeout(max(0.0, seconds) / self._device.speed)
            timeout.callbacks.append(lambda _: self._due(timer))

    def _wake(self) -> None:
        """Look at what has changed once all that happens at this moment has happened: a group arrives as one."""
        if not self._is_woken:
            self._is_woken = True
            self._env.timeout(0).callbacks.append(lambda _: self._look())

    def _due(self, timer: int) -> None:
        if timer == self._timer:
            self._look()

    def _look(self) -> None:
        self._is_woken = False
        if self._is_paused:
            return
        self.settle()
        self._finish()
        self._admit()
        if self._running or self._debt_s > EPSILON * self._costs.decode_s(1):
            self._device.enter(self)
        else:
            self._debt_s = 0.0
            self._device.leave(self)
        self.reschedule()

    def _finish(self) -> None:
        while self._running and (self._running[0][0] <= self._clock + EPSILON or self._running[0][2].is_cancelled):
            _, _, request = heapq.heappop(self._running)
            if not request.is_cancelled:
                self._num_running -= 1
                self.totals.tokens += request.sampled
                request.done.succeed()

    def _admit(self) -> None:
        read = 0
        while self._waiting and self._num_running < self._slots:
            request = self._waiting.popleft()
            read += request.read
            # A sequence enters at the next step.
            end = math.ceil(self._clock - EPSILON) + request.sampled
            heapq.heappush(self._running, (end, next(self._numbers), request))
            self._num_running += 1
        if read:
            self.totals.read += read
            self._debt_s += self._costs.prefill_s(read)
