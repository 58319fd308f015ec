"""A device of the model, and work on it: as long as several parties compute on one, each is slower.

SimPy has no clock that changes its speed, so a party notes how far it is whenever the speed is about to change.
"""

from collections.abc import Generator
from typing import Any, Protocol

Wait = Generator[Any, Any, None]  # a process of SimPy, or a part of one


class Party(Protocol):
    """What computes on a device."""

    def settle(self) -> None:
        """Note how far the work is by now, at the speed that was."""

    def reschedule(self) -> None:
        """Wake up when the work will be done, at the speed that is."""


class SharedDevice:
    """A device, and the parties that compute on it at the moment. With one it has its full speed; n of them have a
    share of `2 / (n * sharing)` each, so that two take `sharing` times as long."""

    def __init__(self, sharing: float) -> None:
        self._sharing = sharing
        self._parties: dict[Party, None] = {}  # in the order in which they came, as runs must not differ

    @property
    def speed(self) -> float:
        """The share of its speed that each party has."""
        num = len(self._parties)
        return 1.0 if num < 2 else 2.0 / (num * self._sharing)

    def enter(self, party: Party) -> None:
        """A party begins to compute."""
        if party not in self._parties:
            self._change(party, True)

    def leave(self, party: Party) -> None:
        """A party does not compute any more."""
        if party in self._parties:
            self._change(party, False)

    def _change(self, party: Party, enters: bool) -> None:
        others = [one for one in self._parties if one is not party]
        for other in others:
            other.settle()
        if enters:
            self._parties[party] = None
        else:
            del self._parties[party]
        for other in others:
            other.reschedule()


class Job:
    """A piece of work of so many seconds on a device that it may share."""

    def __init__(self, env: Any, device: SharedDevice, seconds: float) -> None:
        self._env, self._device = env, device
        self._left_s, self._since = seconds, env.now
        self._done = env.event()
        self._timer = 0

    def run(self) -> Wait:
        """Do it: the process that runs this waits until it is done."""
        self._device.enter(self)
        self._since = self._env.now
        self.reschedule()
        yield self._done
        self._device.leave(self)

    def settle(self) -> None:
        self._left_s -= (self._env.now - self._since) * self._device.speed
        self._since = self._env.now

    def reschedule(self) -> None:
        self._timer += 1  # the timers before it are out of date
        timer = self._timer
        timeout = self._env.timeout(max(0.0, self._left_s) / self._device.speed)
        timeout.callbacks.append(lambda _: self._end(timer))

    def _end(self, timer: int) -> None:
        if timer == self._timer and not self._done.triggered:
            self._done.succeed()
