"""The thread of connections ends once, whatever has happened to it."""

from slimrl.io.loop_thread import LoopThread


def test_a_thread_that_has_died_is_closed_in_silence() -> None:
    thread = LoopThread("x")
    thread._loop.call_soon_threadsafe(thread._loop.stop)
    thread._thread.join(5)
    thread.close()
