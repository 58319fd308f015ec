"""A run of several processes on one host: start sampler, orchestrator and trainer, watch them, and end them together.

Each is the command of its name with the words of this one, so it can as well be started by hand. Knows nothing of what
they do.
"""

import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.ports import free_port
from slimrl.services.children import Child, Children

POLL_S = 0.1
LAST_LINES = 20
REFUSAL = 2  # the exit status of a command after a mistake of the user's
LOGS = "logs"
SLIMRL = [sys.executable, "-m", "slimrl"]


def supervise(config: RLConfig, argv: Sequence[str] | None, note: Callable[[str], None]) -> int:
    """Run all parts of a placed run to their end. Returns the exit status, which is 0: what goes wrong raises
    UserError."""
    if argv is None:
        raise UserError(
            'deployment.type = "processes" starts the command that it was called with several times, and from Python '
            'there is none. Call `slimrl rl @ FILE` instead, or set deployment.type = "one-process".'
        )
    logs = Path(config.output_dir) / LOGS
    note(f"deployment: {_describe(config)}, as processes that meet in {config.output_dir}; logs: {logs}")
    with Children(logs, _with_key(config)) as children:
        sampler = _Sampler(config, argv, children, note)
        trainer = children.start("trainer", [*_trainer(config), "trainer", *argv])
        orchestrator = children.start("orchestrator", [*SLIMRL, "orchestrator", *argv])
        note(f"processes: trainer {trainer.pid}, orchestrator {orchestrator.pid}{sampler.describe()}")
        shown = [trainer, orchestrator]
        while trainer.status is None or orchestrator.status is None:
            time.sleep(POLL_S)
            if orchestrator.status is None:
                sampler.watch()
            # Look first and read afterwards: what has ended has written its last line.
            ended = [child for child in (orchestrator, trainer) if child.status]
            _show(shown, note)
            if ended:
                raise UserError(f"{ended[0].describe_end()}.")
        _show(shown, note)
    return 0


def _with_key(config: RLConfig) -> dict[str, str]:
    """The variable by which the parts know the key of the run's own sampler, so that no other user of this machine can
    give it weights. vLLM's routes for weights have no key."""
    name = config.inference.api_key_variable
    return {} if config.inference.base_url or name in os.environ else {name: secrets.token_urlsafe(32)}


class _Sampler:
    """The sampler of a run, which is started again when it dies, and left alone where it runs elsewhere."""

    def __init__(self, config: RLConfig, argv: Sequence[str], children: Children, note: Callable[[str], None]) -> None:
        self._children, self._note = children, note
        # One port for all its starts, since the orchestrator keeps the address.
        port = str(config.inference.port or free_port())
        self._command = [*SLIMRL, "inference", *argv, "--inference.port", port]
        is_broadcast = config.deployment.weights == "broadcast"  # then only the trainer could give it its weights
        self._restarts_left = 0 if is_broadcast else config.deployment.sampler_restarts
        self._child = None if config.inference.base_url else self._start()

    def describe(self) -> str:
        return f", sampler {self._child.pid}" if self._child else ""

    def watch(self) -> None:
        """Start the sampler again if it has died. Raises UserError if that has happened too often, or if it refuses its
        settings."""
        if self._child is None or self._child.status is None:
            return
        _show([self._child], self._note, LAST_LINES)
        if not self._restarts_left or self._child.status == REFUSAL:
            raise UserError(f"{self._child.describe_end()}.")
        self._restarts_left -= 1
        self._note(self._child.describe_end())
        self._child = self._start()
        self._note(f"started the sampler again: process {self._child.pid}, {self._restarts_left} more times at most")

    def _start(self) -> Child:
        return self._children.start("sampler", self._command)


def _show(children: Sequence[Child], note: Callable[[str], None], most: int = sys.maxsize) -> None:
    """Repeat what the children have said: the trainer's lines as they are, those of others with their name."""
    for child in children:
        for line in child.new_lines(most):
            note(line if child.name == "trainer" else f"{child.name}: {line}")


def _trainer(config: RLConfig) -> list[str]:
    """The start of the trainer's command line, which has torchrun in it for several ranks."""
    num = _num_trainers(config)
    if num == 1:
        return SLIMRL
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num), "-m", "slimrl"]
    return [sys.executable, *torchrun]


def _num_trainers(config: RLConfig) -> int:
    """The number of the trainer's ranks: one for each of its GPUs, if it has any."""
    return len(config.trainer_gpu_ids) or config.deployment.num_trainers


def _describe(config: RLConfig) -> str:
    num = _num_trainers(config)
    trainers = "a trainer" if num == 1 else f"a trainer of {num} ranks"
    sampler = f"a sampler at {config.inference.base_url}" if config.inference.base_url else "a sampler"
    return f"{sampler}, an orchestrator and {trainers}, at most {config.async_level} versions apart"
