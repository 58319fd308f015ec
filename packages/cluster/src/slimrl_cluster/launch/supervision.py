"""Supervises a run of several programs: starts samplers, orchestrator and trainer, watches them, restarts dead
programs, and stops all programs together.

Each program is a slimrl command with the same arguments as `rl`, so a user can also start it by hand. The programs run
as children on this host, or through Ray on the nodes of a cluster.
"""

import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from slimrl.config.deployment import Part
from slimrl.config.run import RLConfig
from slimrl.errors import UserError
from slimrl.io.last_resort import end_by_itself
from slimrl.io.run_dir import RunDir
from slimrl.launch.placement import with_level
from slimrl_cluster.launch.status import read_scale, write_programs, write_scale
from slimrl_cluster.services.children import Children
from slimrl_cluster.services.programs import ADDRESS, End, Needs, Program, Programs
from slimrl_cluster.services.ray_programs import RayPrograms
from slimrl_cluster.transport.roster import Facts, file_members

POLL_S = 0.1
LOOK_S = 1.0  # seconds between two checks of the requested number of samplers; also between two reports
PEER_REPORT_TIMEOUT_S = 60.0  # seconds to wait for the original failure after a program has exited because of it
LAST_LINES = 20
SLIMRL = [sys.executable, "-m", "slimrl"]
RESUME = "--resume"
PAIR: tuple[Part, Part] = ("trainer", "orchestrator")


def supervise(config: RLConfig, argv: Sequence[str] | None, note: Callable[[str], None]) -> int:
    """Run all parts of a run until they end; this process loads no model. `config` is a result of `place`. Return the
    exit status 0; failures raise UserError."""
    if argv is None:
        raise UserError(
            f'deployment.type = "{config.deployment.type}" starts the command that it was called with several times, '
            "and from Python there is none. Call `slimrl rl @ FILE` instead, or set deployment.type = "
            '"one-process".'
        )
    end_by_itself()
    logs, deployment, cpus = RunDir(Path(config.output_dir)).logs, config.deployment, config.deployment.cpus
    if deployment.type == "ray":
        with RayPrograms(deployment.address, logs, _with_key(config), note, deployment.timeout_s) as cluster:
            has_gpus = cluster.num_gpus > 0 and config.model.device != "cpu"
            config = with_level(config, has_gpus)
            note(f"deployment: {describe_parts(config)}, on {cluster.describe()}; logs: {logs}")
            Supervision(config, argv, cluster, Needs(cpus, int(has_gpus)), note).run()
    else:
        with Children(logs, _with_key(config)) as children:
            note(f"deployment: {describe_parts(config)}, as processes of this machine; logs: {logs}")
            Supervision(config, argv, children, Needs(cpus), note).run()
    return 0


def _with_key(config: RLConfig) -> dict[str, str]:
    """Return the environment variable with the samplers' API key. The key keeps others from sending weights to the
    samplers, except to vLLM: its routes for weights check no key. A user's own key is passed on, because the nodes of a
    cluster may lack it."""
    name = config.inference.api_key_variable
    key = os.environ.get(name, "")
    if not key and not config.inference.base_url:
        key = secrets.token_urlsafe(32)
    return {name: key} if key else {}


class Supervision:
    """Starts and watches the programs of one run. `needs` are the resources of one trainer rank. A sampler has
    `gpus_per_sampler` times as many GPUs as a rank, and the orchestrator has no GPU."""

    def __init__(
        self, config: RLConfig, argv: Sequence[str], programs: Programs, needs: Needs, note: Callable[[str], None]
    ) -> None:
        self._config, self._programs, self._needs, self._note = config, programs, needs, note
        # Resolve these settings here once: a part may see other GPUs than this process, and a link such as
        # `weights/latest` may change before the part starts.
        decided = {"model.name": config.model.name, "max_async_level": config.async_level, "deployment.host": ADDRESS}
        self._argv = [*argv, *(word for key, value in decided.items() for word in (f"--{key}", str(value)))]
        self._run = RunDir(Path(config.output_dir))
        self._deaths = _Deaths(config.deployment.restarts, self._run)
        self._samplers: dict[int, Program] = {}
        gpus = len(config.inference_gpu_ids)
        self._share = max(1, gpus // config.deployment.num_samplers)  # number of GPUs per sampler
        self._most = gpus // self._share if gpus else sys.maxsize
        self._pair: tuple[Program, ...] = ()  # trainer and orchestrator
        self._joined: set[str] = set()  # the parts of the pair that have been members of the run
        self._written: tuple[object, ...] = ()
        self._wanted, self._looked = 0 if config.inference.base_url else config.deployment.num_samplers, 0.0

    def run(self) -> None:
        """Run all parts to their end. Raises UserError with the cause if they cannot continue."""
        write_scale(self._run, 0)  # a new start uses the number in the settings
        self._fill_samplers()
        self._pair = self._start_pair([])
        self._note_processes()
        while not all(map(_is_done, self._pair)):
            time.sleep(POLL_S)
            if not self._pair[1].end:
                self._replace_dead_samplers()
            if time.monotonic() - self._looked > LOOK_S:
                self._look()
            # Check for ended programs before reading their lines: then no line of an ended program is missed.
            ended = [one.end for one in self._pair if one.end and not one.end.is_good]
            self._show()
            if ended:
                self._start_again(ended[0])
        self._show()

    def _note_processes(self) -> None:
        self._note("processes: " + ", ".join(f"{name} {process}" for name, process in self._processes().items()))

    def _processes(self) -> dict[str, str]:
        return {one.name: one.process for one in (*self._pair, *self._samplers.values())}

    def _start_pair(self, more: Sequence[str]) -> tuple[Program, Program]:
        """Start trainer and orchestrator together, because both must continue from the same step. `more` are additional
        arguments."""
        command = [*SLIMRL, "trainer", *self._argv, *more]
        trainer = self._programs.start_ranks("trainer", command, num_trainers(self._config), self._needs)
        needs = Needs(self._needs.cpus)
        orchestrator = self._programs.start("orchestrator", [*SLIMRL, "orchestrator", *self._argv, *more], needs)
        return trainer, orchestrator

    def _start_again(self, end: End) -> None:
        """Start trainer and orchestrator again from the last checkpoint, after one of them has ended with `end`.
        Samplers keep running. Raises UserError if a restart would fail again, or if the restart budget is spent."""
        end = self._find_cause(end)
        failed_at_once = (end.status or 0) > 0 and not self._deaths.has_progressed()
        for program in self._pair:
            program.stop()
        self._show()
        if end.has_refused or failed_at_once or not self._deaths.allow():
            raise UserError(f"{end.text}.")
        self._note(end.text)
        self._note(f"trainer and orchestrator go on from the last checkpoint; {self._deaths.describe()}")
        self._joined = set()
        self._pair = self._start_pair([] if self._config.resume else [RESUME])
        self._note_processes()

    def _find_cause(self, end: End) -> End:
        """Return the end of the program that failed first. `end` was noticed first, but it may be a consequence: a
        program that waits for a dead program exits as well."""
        deadline = time.monotonic() + PEER_REPORT_TIMEOUT_S
        while end.has_refused and time.monotonic() < deadline:
            ends = [one.end for one in self._pair if one.end and not one.end.is_good]
            if causes := [one for one in ends if not one.has_refused]:
                return causes[0]
            if len(ends) == 2 or (num_trainers(self._config) == 1 and not self._has_lost_a_part()):
                break
            time.sleep(POLL_S)
        return end

    def _has_lost_a_part(self) -> bool:
        """Return True if trainer or orchestrator is no longer a member of the run, but its process has not ended yet. A
        process leaves the run a moment before it ends."""
        present = self._present(self._programs.members())
        return any(part in self._joined - present and not one.end for part, one in zip(PAIR, self._pair, strict=True))

    def _present(self, members: Mapping[str, Facts]) -> set[str]:
        on_cluster = {facts["part"] for facts in members.values()}
        return on_cluster | {part for part in PAIR if file_members(self._run, part)}

    def _replace_dead_samplers(self) -> None:
        for number, program in [*self._samplers.items()]:
            if not (end := program.end):
                continue
            for line in program.new_lines(LAST_LINES):
                self._note(f"{program.name}: {line}")
            program.stop()  # on a cluster this frees the resources, which the new sampler may need
            if end.has_refused or not self._deaths.allow():
                raise UserError(f"{end.text}.")
            self._note(end.text)
            self._samplers[number] = new = self._start_sampler(number)
            self._note(f"started {new.name} again, as {new.process}: {self._deaths.describe()}")

    def _look(self) -> None:
        """Start or stop samplers until there are as many as wanted. Write the programs to the run's directory, for
        `slimrl status`."""
        self._looked = time.monotonic()
        members = dict(self._programs.members())
        self._joined |= self._present(members)
        wanted = min(read_scale(self._run) or self._wanted, self._most)
        if not self._config.inference.base_url and not self._pair[1].end and wanted != self._wanted:
            self._note(f"{wanted} samplers are wanted, in place of {self._wanted}")
            self._wanted = wanted
            self._fill_samplers()
        now = self._processes(), self._deaths.num_all, members
        if now != self._written:
            self._written = now
            write_programs(self._run, *now)

    def _fill_samplers(self) -> None:
        for number in range(self._wanted):
            if number not in self._samplers:
                self._samplers[number] = self._start_sampler(number)
        for number in [number for number in self._samplers if number >= self._wanted]:
            sampler = self._samplers.pop(number)
            sampler.stop()
            self._note(f"ended {sampler.name}, which is not wanted any more")

    def _start_sampler(self, number: int) -> Program:
        words, gpus = [*SLIMRL, "inference", *self._argv], self._config.inference_gpu_ids
        if gpus:
            own = gpus[number * self._share : (number + 1) * self._share]
            words += ["--deployment.num_samplers", "1", "--inference_gpu_ids", ",".join(map(str, own))]
        if port := self._config.inference.port:
            words += ["--inference.port", str(port + number)]
        needs = Needs(self._needs.cpus, self._needs.gpus * self._config.deployment.gpus_per_sampler)
        return self._programs.start(f"sampler-{number}", words, needs)

    def _show(self) -> None:
        for program, start in zip(self._pair, ("", "orchestrator: "), strict=True):
            for line in program.new_lines():
                self._note(f"{start}{line}")


class _Deaths:
    """The restart budget of a run. It is refilled whenever the run gets further than ever before. So a run that always
    fails at the same step ends, even if it successfully repeats the earlier steps."""

    def __init__(self, most: int, run: RunDir) -> None:
        self._most = most
        self._metrics = [run.warmup.metrics, run.metrics]
        self.num_all = 0
        self._num, self._size = 0, self._now()
        self._furthest = self._num_lines()

    def has_progressed(self) -> bool:
        """Return True if something was trained or measured since the last death."""
        return self._now() != self._size

    def allow(self) -> bool:
        """Count one more death. Return True if the budget allows a restart."""
        self._size = self._now()
        if (num_lines := self._num_lines()) > self._furthest:
            self._num, self._furthest = 0, num_lines
        self._num += 1
        self.num_all += 1
        return self._num <= self._most

    def describe(self) -> str:
        left = self._most - self._num
        return f"{left} more deaths are survived before it comes further (deployment.restarts)"

    def _now(self) -> int:
        return sum(path.stat().st_size for path in self._metrics if path.is_file())

    def _num_lines(self) -> int:
        return sum(path.read_bytes().count(b"\n") for path in self._metrics if path.exists())


def num_trainers(config: RLConfig) -> int:
    """Return the number of trainer ranks: one for each of `trainer_gpu_ids`, else `deployment.num_trainers`."""
    return len(config.trainer_gpu_ids) or config.deployment.num_trainers


def describe_parts(config: RLConfig) -> str:
    """Describe the parts of a run."""
    num, many = num_trainers(config), config.deployment.num_samplers
    trainers = "a trainer" if num == 1 else f"a trainer of {num} ranks"
    samplers = "a sampler" if many == 1 else f"{many} samplers"
    samplers = f"a sampler at {config.inference.base_url}" if config.inference.base_url else samplers
    return f"{samplers}, an orchestrator and {trainers}, at most {config.async_level} versions apart"


def _is_done(program: Program) -> bool:
    return program.end is not None and program.end.is_good
