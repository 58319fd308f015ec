"""Implements the `inference` command. It runs an HTTP server in this process until a signal stops the server."""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import wait

from slimrl.config.serve import ServeConfig
from slimrl.errors import UserError
from slimrl.io.loop_thread import has_blocked_calls
from slimrl.models.device import dtype_name
from slimrl.models.native.build import why_slow
from slimrl_serve.app import make_app
from slimrl_serve.http.server import HttpServer, listen
from slimrl_serve.service import Service
from slimrl_serve.start import until_signal

# The longest time that a thread keeps the interpreter's lock while others wait. The engine requests the lock after each
# of its hundreds of operations per step. With Python's default of 5 ms, a busy event loop would often delay it.
SWITCH_INTERVAL_S = 0.0005
POLL_S = 0.2
FAILED = 1


class InferenceServer(HttpServer):
    """Context manager for a service and its HTTP server. On entry it waits until the model is loaded, or until
    `stopped` is set."""

    def __init__(self, config: ServeConfig, stopped: threading.Event | None = None) -> None:
        listening = listen(config.host, config.port)
        self.service = Service(config)
        self._stopped = stopped or threading.Event()
        super().__init__(make_app(self.service), listening, config.grace_s)

    def __enter__(self) -> "InferenceServer":
        self.start()
        try:
            loaded = self.service.thread.loaded
            while not self._stopped.is_set() and not wait([loaded], POLL_S).done:
                self.check_alive()
            if loaded.done():
                loaded.result()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def check_alive(self) -> None:
        """Raise UserError if the HTTP server has stopped."""
        if not self.is_alive:
            raise UserError("The HTTP server ended by itself; the lines above have the reason.")

    def describe(self) -> str:
        """Return a line with the served model, the address and the main settings."""
        config, policy = self.service.config, self.service.policy
        key = "" if config.api_key else ", no API key"
        return (
            f"{self.service.name} at {self.address}/v1: {config.max_slots} slots of {config.context_len} tokens, "
            f"{policy.device}, {dtype_name(policy.dtype)}{key}"
        )


def serve(config: ServeConfig, announce: Callable[[str], None]) -> int:
    """Serve until SIGTERM or Ctrl-C. `announce` receives the address when the model is loaded. Return the exit status,
    which is not 0 if the engine has failed."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with until_signal() as stopped, InferenceServer(config, stopped) as server:
        if not stopped.is_set():
            print(server.describe(), flush=True)
            if server.service.policy.device.type == "cpu" and (reason := why_slow()):
                print(reason, flush=True)
            announce(server.address)
        while not stopped.wait(POLL_S):
            server.check_alive()
            if server.service.thread.ended:
                print("stopping: the engine has ended; the lines above have the reason", flush=True)
                return FAILED
        print("stopping: no new requests are taken", flush=True)
    if server.service.thread.is_alive or has_blocked_calls():
        # A thread is inside PyTorch. A normal exit of Python would stop it there, and the process would abort.
        sys.stdout.flush()
        os._exit(0)
    return 0
