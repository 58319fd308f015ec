"""The `inference` command: an HTTP server in this process, which runs until a signal stops it."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path

from slimrl.config.model import LoraConfig
from slimrl.config.reading.load import Resolved
from slimrl.config.run import RLConfig
from slimrl.config.serve import ServeConfig
from slimrl.errors import UserError
from slimrl.inference.server.app import make_app
from slimrl.inference.server.service import Service
from slimrl.io.daemon import has_blocked_calls
from slimrl.io.http_server import HttpServer, listen
from slimrl.io.ports import free_port
from slimrl.launch.placement import device_of, place
from slimrl.launch.run_dir import with_pinned_model
from slimrl.launch.vllm import run_vllm
from slimrl.models.device import dtype_name
from slimrl.models.native.build import why_slow
from slimrl.monitor.console import RunConsole
from slimrl.transport.roster import Roster
from slimrl.transport.run_files import RunFiles

# The longest time that a thread keeps the interpreter's lock while others wait. The engine asks for the lock after
# each of its hundreds of operations per step. With Python's default of 5 ms, a busy event loop would let it wait often.
SWITCH_INTERVAL_S = 0.0005
POLL_S = 0.2
FAILED = 1
MAX_QUEUE = 65536  # the only client of a run asks for no more than its episodes need


class InferenceServer:
    """A service and the HTTP server in front of it, as a context manager. Inside the `with` block the model is loaded,
    unless `stopped` was set while it was loading, which may take long."""

    def __init__(self, config: ServeConfig, stopped: threading.Event | None = None) -> None:
        listening = listen(config.host, config.port)
        self.service = Service(config)
        self.http = HttpServer(make_app(self.service), listening, config.grace_s)
        self._stopped = stopped or threading.Event()

    @property
    def address(self) -> str:
        return self.http.address

    def __enter__(self) -> "InferenceServer":
        self.http.start()
        try:
            loaded = self.service.thread.loaded
            while not self._stopped.is_set() and not wait([loaded], POLL_S).done:
                self.check_alive()
            if loaded.done():
                loaded.result()
        except BaseException:
            self.http.stop()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.http.stop()

    def check_alive(self) -> None:
        """Raise UserError if the HTTP server has ended."""
        if not self.http.wait(0):
            raise UserError("The HTTP server ended by itself; what stands above says why.")

    def describe(self) -> str:
        """A line that says what is served, and where."""
        config, policy = self.service.config, self.service.model.policy
        key = "" if config.api_key else ", no API key"
        return (
            f"{self.service.name} at {self.address}/v1: {config.max_slots} slots of {config.context_len} tokens, "
            f"{policy.device}, {dtype_name(policy.dtype)}{key}"
        )


def run_inference(resolved: Resolved[ServeConfig]) -> int:
    """Run the `inference` command: serve until SIGTERM or Ctrl-C."""
    return serve(resolved.config, lambda address: None)


def serve(config: ServeConfig, announce: Callable[[str], None]) -> int:
    """Serve until SIGTERM or Ctrl-C. `announce` receives the address when the model is loaded. Returns the exit status,
    which is not 0 if the engine has ended by itself."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with _signals() as stopped, InferenceServer(config, stopped) as server:
        if not stopped.is_set():
            print(server.describe(), flush=True)
            if server.service.model.policy.device.type == "cpu" and (reason := why_slow()):
                print(reason, flush=True)
            announce(server.address)
        while not stopped.wait(POLL_S):
            server.check_alive()
            if server.service.thread.ended:
                print("stopping: the engine has ended; what stands above says why", flush=True)
                return FAILED
        print("stopping: no new requests are taken", flush=True)
    if server.service.thread.is_alive or has_blocked_calls():
        # A thread is inside PyTorch. A normal exit of Python would end it there, and the process would abort.
        sys.stdout.flush()
        os._exit(0)
    return 0


def run_sampler_of_rl(resolved: Resolved[RLConfig]) -> int:
    """Run the `inference` command on a file of `rl`: serve that run's model to its orchestrator, until a signal."""
    console = RunConsole()
    config = device_of(place(with_pinned_model(resolved).config, console.note, "inference"), "inference")
    roster = Roster(Path(config.output_dir))
    with roster.reserve("inference") as entry:
        dtype: str = config.model.dtype
        if dtype == "auto":  # the trainer measures it, since the weights come from there
            files = RunFiles(roster.output_dir, config.deployment.timeout_s, console.note, roster, "inference")
            dtype = files.await_part("trainer")["dtype"]

        def announce(address: str) -> None:
            roster.announce(entry, {"address": address})

        if config.inference.backend == "vllm":
            with _signals() as stopped:
                name = Path(entry.name).stem.replace("inference", "vllm")
                address = config.deployment.host, config.inference.port or free_port(config.deployment.host)
                return run_vllm(config, name, dtype, address, stopped, announce)
        settings = ServeConfig(
            host=config.deployment.host,
            port=config.inference.port,
            api_key=os.environ.get(config.inference.api_key_variable, ""),
            context_len=config.seq_len,
            max_slots=config.inference.max_slots,
            max_queue=MAX_QUEUE,
            lookup_tokens=config.inference.lookup_tokens,
            quantization=config.inference.quantization,
            grace_s=0,
            # The trainer's adapter comes with its weights, and is merged into these.
            model=config.model.model_copy(update={"dtype": dtype, "lora": LoraConfig()}),
        )
        return serve(settings, announce)


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that the first SIGTERM or SIGINT sets. A second signal raises KeyboardInterrupt at once."""
    stopped = threading.Event()

    def stop(number: int, frame: object) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    earlier = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
