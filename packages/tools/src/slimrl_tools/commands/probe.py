"""The `probe` command: measures the possible gain of distillation, without training anything.

The command reads the same file as `rl`, and measures three things: the policy's held-out reward, the held-out reward of
the teacher with its larger context, and the distance between policy and teacher on a batch of the policy's own
rollouts.
"""

import json
import math
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from slimrl.config.reading.load import Resolved
from slimrl.config.run import ProbeConfig
from slimrl.config.teacher import TeacherConfig
from slimrl.errors import UserError
from slimrl.eval.evaluate import Evaluation, make_eval_policy, mode_of
from slimrl.io.files import replace_file, without_nan
from slimrl.launch.held_out import HeldOut, HeldOutPlan
from slimrl.launch.open_dir import open_evaluation_dir
from slimrl.launch.parts import Parts, make_context, make_rl_parts
from slimrl.launch.placement import place
from slimrl.launch.sampling import make_orchestrator, make_room
from slimrl.launch.teacher import ModuleTeacher, make_distillation, teacher_tasksets
from slimrl.monitor.console import RunConsole
from slimrl.monitor.tables import Cells, as_markdown, for_terminal
from slimrl.orchestrator.distill import Teacher
from slimrl.orchestrator.teacher_server import ServerTeacher
from slimrl.rollout.episode import RolloutContext
from slimrl.stats import Estimate, paired_difference
from slimrl.types import Metrics

DIRECTORY = "probe"
STUDENT, TEACHER, GAP = "student", "teacher", "gap"


@dataclass(frozen=True, slots=True)
class Probe:
    """The results of the command. For each decoding mode, `gaps` has the held-out rewards of student and teacher, and
    the mean of their difference per task. `distance` has the `distill/` metrics of `num_rollouts` rollouts of the
    student."""

    gaps: dict[str, dict[str, Estimate]]
    distance: Metrics
    num_rollouts: int


def run_probe(resolved: Resolved[ProbeConfig]) -> int:
    """Run the `probe` command, which writes `probe.json`, `probe.md` and all rollouts to `output_dir/probe`. Returns
    0."""
    console, began = RunConsole(), time.monotonic()
    config = place(resolved.config, console.note)
    with open_evaluation_dir(resolved, Path(config.output_dir) / DIRECTORY, False, console.note) as output_dir:
        parts = make_rl_parts(config, output_dir, console)
        probe = measure(parts)
        table = as_cells(probe)
        console.show(for_terminal(table, console.is_live))
        content = without_nan(asdict(probe))
        replace_file(output_dir / "probe.json", [json.dumps(content, indent=1, allow_nan=False).encode()])
        replace_file(output_dir / "probe.md", [as_markdown(table).encode()])
        console.note(f"{time.monotonic() - began:.0f} s; probe.json, probe.md and every rollout: {output_dir}")
    return 0


def measure(parts: Parts) -> Probe:
    """Run all measurements, and return their results. The policy stays unchanged."""
    distillation = make_distillation(parts)
    assert distillation is not None, "the command has a teacher (check_probe)"
    orchestrator = make_orchestrator(parts, distillation)
    student = _evaluations(parts.held_out, STUDENT)
    distance = orchestrator.collect(0).metrics
    make_room(parts)
    teacher = _evaluations(_teacher_held_out(parts, distillation.teacher), TEACHER)
    return Probe(
        {
            mode: {STUDENT: ours.reward, TEACHER: teacher[mode].reward, GAP: _gap(ours, teacher[mode])}
            for mode, ours in student.items()
        },
        {name: value for name, value in distance.items() if name.startswith("distill/")},
        int(distance["rollout/num_trained"]),
    )


def as_cells(probe: Probe) -> Cells:
    """Return the results as a table."""
    rows: list[tuple[str, ...]] = [("", STUDENT, TEACHER, GAP)]
    for mode, gap in probe.gaps.items():
        rows.append((f"reward, {mode}", *map(_estimate, gap.values())))
    student, teacher = (probe.distance.get(f"distill/{who}_logprob", math.nan) for who in (STUDENT, TEACHER))
    kl = probe.distance.get("distill/reverse_kl", math.nan)
    rows.append(("log-probability of a token", f"{student:.3f}", f"{teacher:.3f}", f"{kl:.3f} (reverse KL)"))
    title = f"what the teacher knows more; log-probabilities on {probe.num_rollouts} rollouts of the student"
    return Cells(title, tuple(rows))


def _teacher_held_out(parts: Parts, teacher: Teacher) -> HeldOut:
    """Return the held-out evaluation of the teacher. The tasks and the chat format are the student's, but the context
    is the teacher's."""
    config, settings, samplings = parts.config, parts.config.teacher, parts.held_out.plan.samplings
    assert isinstance(settings, TeacherConfig)
    tasksets = dict(zip(config.orchestrator.labels, teacher_tasksets(parts) or parts.tasksets, strict=True))
    plan = HeldOutPlan(tasksets, "test", config.eval.num_examples, samplings)
    limits, chat, seq_len = config.orchestrator, parts.context.chat, settings.seq_len

    @cache
    def context() -> RolloutContext:
        match teacher:
            case ServerTeacher():
                return RolloutContext(teacher, chat, limits, seq_len, teacher.num_concurrent)
            case ModuleTeacher():
                return make_context(teacher.module(), chat, config.inference, limits, seq_len)
        raise AssertionError(teacher)

    return HeldOut(plan, lambda: make_eval_policy(context()), parts.output_dir, parts.console)


def _evaluations(held_out: HeldOut, name: str) -> dict[str, Evaluation]:
    evaluations = {mode_of(s.temperature): held_out.play(name, name, s) for s in held_out.plan.samplings}
    held_out.record(name, name, list(evaluations.values()))
    return evaluations


def _gap(student: Evaluation, teacher: Evaluation) -> Estimate:
    """Return the mean of the teacher's reward minus the student's reward, over the tasks that both finished. Raises
    UserError if both finished no common task."""
    both = [
        (theirs.reward, ours.reward)
        for ours, theirs in zip(student.rollouts, teacher.rollouts, strict=True)  # the same tasks in the same order
        if not ours.failure and not theirs.failure
    ]
    if not both:
        raise UserError("student and teacher finished no task both, so there is no gap to speak of; see the rollouts.")
    return paired_difference(*zip(*both, strict=True))


def _estimate(estimate: Estimate) -> str:
    return f"{estimate.mean:.3f} ({estimate.interval})"
