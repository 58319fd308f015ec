"""Interrupts code that never returns control to the event loop, such as an endless loop without an `await`.

`run_bounded` raises `Hang` in such code. In the main thread the signal of an interval timer does that, and in another
thread a watchdog, which has Python raise it there. A bare `except:` in a loop would catch it and hold up the run for
ever, so code that catches it is interrupted once more behind its `except`.
"""

import ctypes
import math
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

T = TypeVar("T")
POLL_S = 0.05  # between two looks of the watchdog


class Hang(BaseException):
    """The interruption of code that held the thread for too long. It is no `Exception`, so that `except Exception` in
    that code does not catch it."""


class _HangInThread(Hang):
    """The one that the watchdog raises. Python makes it in the thread that hangs, when it is caught for the first time:
    there its tracing begins."""

    def __init__(self) -> None:
        super().__init__()
        if tracer := _WATCHDOG.tracer():
            tracer.follow(sys._getframe())


class _Tracer:
    """A trace function, which Python calls before each line: it raises Hang again on the first line behind an `except`
    that has caught one (most likely a bare one). `finally` and `with` blocks may still clean up."""

    def __init__(self) -> None:
        self.is_running = True

    def __call__(self, _frame: types.FrameType, event: str, _arg: object) -> Any:
        if self.is_running and event == "line" and not isinstance(sys.exception(), Hang):
            raise Hang  # an exception in a trace function also ends the tracing
        return self

    def follow(self, frame: types.FrameType | None) -> None:
        """Trace the frame, those that called it up to `run_bounded`, and what is called from now on."""
        # `settrace` alone covers the functions that are called from now on.
        while frame and frame.f_code is not run_bounded.__code__:
            frame.f_trace, frame = self, frame.f_back
        sys.settrace(self)


def run_bounded(resume: Callable[[], T], limit_s: float, hung: bool = False) -> T:
    """Call `resume`, and raise Hang in the code that runs whenever another `limit_s` seconds have passed.

    With `hung`, `resume` itself raises the first one.
    """
    tracer, before = _Tracer(), sys.gettrace()
    alarm = _Signal() if threading.current_thread() is threading.main_thread() else _WATCHDOG
    alarm.arm(tracer, limit_s)
    try:
        if hung:
            sys.settrace(tracer)
        return resume()
    finally:
        # First of all: Python runs signal handlers at calls, and the next lines make some.
        tracer.is_running = False
        try:
            sys.settrace(before)
        finally:
            alarm.disarm()  # also if the watchdog's Hang comes in the line before


def overdue_s(thread: int) -> float:
    """For how long Hang has been due in code of another thread that `run_bounded` runs there, and has not ended it: it
    waits in C, as `time.sleep` does, where Python raises nothing."""
    return _WATCHDOG.overdue_s(thread)


@contextmanager
def without_alarm() -> Iterator[None]:
    """Stops the timer of `run_bounded` inside, where slimrl itself waits, and for a bounded time."""
    if threading.current_thread() is not threading.main_thread():
        with _WATCHDOG.suspend():
            yield
        return
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, interval)


class _Signal:
    """The alarm of the main thread, which alone receives signals."""

    def arm(self, tracer: _Tracer, limit_s: float) -> None:
        def interrupt(_signum: int, frame: types.FrameType | None) -> None:
            if tracer.is_running:
                tracer.follow(frame)
                raise Hang

        self._handler = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, limit_s, limit_s)

    def disarm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._handler)


@dataclass(frozen=True, slots=True)
class _Armed:
    """When the watchdog raises Hang next, and when it first did."""

    tracer: _Tracer
    deadline: float
    limit_s: float
    raised: float = math.inf


class _Watchdog:
    """The alarm of all other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: dict[int, _Armed] = {}  # by thread
        self._thread: threading.Thread | None = None

    def arm(self, tracer: _Tracer, limit_s: float) -> None:
        with self._lock:
            self._armed[threading.get_ident()] = _Armed(tracer, time.monotonic() + limit_s, limit_s)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
                self._thread.start()

    def disarm(self) -> None:
        try:
            self._take_off()
        except Hang:  # it came at the last moment: there is no second one before another limit has passed
            self._take_off()
            raise

    def tracer(self) -> _Tracer | None:
        """The tracer of the present thread."""
        armed = self._armed.get(threading.get_ident())
        return armed.tracer if armed else None

    def overdue_s(self, thread: int) -> float:
        armed = self._armed.get(thread)
        return max(0.0, time.monotonic() - armed.raised) if armed and armed.deadline < math.inf else 0.0

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """Stops the alarm of the present thread inside."""
        thread, now = threading.get_ident(), time.monotonic()
        if not (armed := self._armed.get(thread)):
            yield
            return
        self._armed[thread] = replace(armed, deadline=math.inf)
        try:
            yield
        finally:
            self._armed[thread] = replace(armed, deadline=time.monotonic() + max(0.0, armed.deadline - now))

    def _take_off(self) -> None:
        thread = threading.get_ident()
        with self._lock:
            self._armed.pop(thread, None)
            _raise_in(thread, None)  # what has been raised and has not come yet

    def _watch(self) -> None:
        while True:
            time.sleep(POLL_S)
            with self._lock:
                now = time.monotonic()
                for thread, armed in self._armed.items():
                    if now > armed.deadline:
                        raised = min(armed.raised, now)
                        self._armed[thread] = replace(armed, deadline=now + armed.limit_s, raised=raised)
                        _raise_in(thread, _HangInThread)


def _raise_in(thread: int, exception: type[BaseException] | None) -> None:
    """Have Python raise an exception in another thread as soon as that runs Python; None takes it back."""
    value = ctypes.py_object(exception) if exception else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)


_WATCHDOG = _Watchdog()
