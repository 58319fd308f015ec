"""Looks at how episodes go: whether they fail, end, hold up others, and go the same way when they are played again."""

import math
from collections.abc import Sequence
from statistics import median

from slimrl.monitor.findings import Finding, Level
from slimrl.types import StopReason
from slimrl_tools.check.timing import MADE, START, Call, fastest
from slimrl_tools.check.trial import SCRIPT_ERROR, Played

HELD_NOTE_S, HELD_PROBLEM_S = 0.1, 0.5
STEP_NOTE_S = 1.0
LEFT = "partner_left"  # in self-play the first to run out of turns leaves the others waiting, which is no fault
WORKER_REMEDY = "Use no `hash()` of texts, process ids or addresses, and nothing that only one process has."
# The subject of a failure by its reason, where the reason alone tells it.
SUBJECTS = {
    "environment_died": "crash",
    "environment_lost": "crash",
    "timeout": "hang",
    "nonfinite_reward": "reward",
    "prompt_too_long": "opening",
}
REMEDIES = {
    "crash": "Catch what ends the process: `exit`, `os._exit`, memory that runs out, a fault in C.",
    "hang": "Bound every wait, loop and regular expression; the limit of a call is `episode_timeout_s`.",
    "reward": "Give a finite number: look for a division by 0, or a mean of nothing.",
    "opening": "Mend `start`: it gives messages with a role and a text as content, the last one for the policy.",
    "expert": "Mend the script or the environment: an expert's episode must not fail.",
    "garbage": "Take any text for a reply: answer what cannot be read with a message, or end the episode with 0.",
}


def failure_findings(played: Sequence[Played]) -> list[Finding]:
    """A problem for each kind of failure among the episodes, with the first one; `garbage` and `crash` are always
    there."""
    failed: dict[str, list[Played]] = {}
    for one in played:
        if one.rollout.failure and one.rollout.failure != LEFT:
            failed.setdefault(subject_of(one), []).append(one)
    found = []
    for subject, episodes in failed.items():
        first = episodes[0]
        text = (
            f"{len(episodes)} of {len(played)} episodes failed; the first with {_describe(first)}: "
            f"{first.rollout.failure_detail or first.rollout.failure}"
        )
        found.append(Finding(subject, Level.PROBLEM, text, REMEDIES.get(subject, "Read the message.")))
    if "garbage" not in failed:
        kinds = len({one.what for one in played if not one.is_script})
        found.append(Finding("garbage", Level.OK, f"{kinds} kinds of useless replies break nothing"))
    return found


def subject_of(failed: Played) -> str:
    """The subject of a failed episode."""
    if (subject := SUBJECTS.get(failed.rollout.failure)) is not None:
        return subject
    if failed.rollout.failure not in ("environment_error", SCRIPT_ERROR):
        return failed.rollout.failure.replace("_", " ")  # such as a judge that does not answer
    if not failed.rollout.turns and failed.rollout.failure == "environment_error":
        return "opening"
    return "expert" if failed.is_script else "garbage"


def metrics_finding(played: Sequence[Played]) -> Finding:
    """Whether all metrics are finite."""
    for one in played:
        for name, value in one.rollout.metrics.items():
            if not math.isfinite(value):
                found = f"`{name}` is {value} with {_describe(one)}"
                remedy = "Leave a metric out where it has no value: it is averaged over the other episodes."
                return Finding("metrics", Level.PROBLEM, found, remedy)
    return Finding("metrics", Level.OK, "all finite")


def end_finding(played: Sequence[Played], max_turns: int) -> Finding | None:
    """Whether episodes end by themselves: all of those of scripts, or without any some of the others. None where no
    episode tells."""
    whole = [one for one in played if not one.rollout.failure]
    scripts = [one for one in whole if one.is_script]
    remedy = "Give `Turn(done=True)` for the last reply; or this was too short: raise --max_turns."
    for one in scripts:
        if one.rollout.stop_reason is not StopReason.DONE:
            text = f"the episode of {_describe(one)} did not end within {max_turns} turns"
            return Finding("ends", Level.PROBLEM, text, remedy)
    if scripts:
        longest = max(len(one.rollout.turns) for one in scripts)
        return Finding("ends", Level.OK, f"every script's episode ends, after {longest} turns at most")
    if not whole:
        return None
    if any(one.rollout.stop_reason is StopReason.DONE for one in whole):
        return Finding("ends", Level.OK, "episodes end by themselves")
    return Finding("ends", Level.NOTE, f"no episode ended within {max_turns} turns", remedy)


def repeat_finding(plays: Sequence[Sequence[Played]]) -> Finding:
    """Whether each episode takes the same course when it is played again; each element has the plays of one."""
    for first, *others in plays:
        for other in others:
            if first.course != other.course:
                text = f"the same replies to the same task ({_describe(first)}) gave {difference(first, other)}"
                remedy = 'Draw from `random.Random(f"{task.id}")` in each episode, and never change the task\'s data.'
                return Finding("repeatable", Level.PROBLEM, text, remedy)
    return Finding("repeatable", Level.OK, f"{len(plays)} episodes went the same way again")


def change_finding(task_id: str) -> Finding:
    """The problem of an episode that has changed the data of its task."""
    text = f"an episode changed the data of its task `{task_id:.60}`, so that the next one has another"
    return Finding("repeatable", Level.PROBLEM, text, "Copy what an episode changes: `copy.deepcopy(task.data)`.")


def isolation_finding(pairs: Sequence[tuple[Played, Played]]) -> Finding:
    """Whether an episode goes its way beside another one; each pair is alone, and beside another."""
    for alone, beside in pairs:
        if alone.course != beside.course:
            text = f"beside another episode, {_describe(alone)} gave {difference(alone, beside)}"
            remedy = "Make a new episode in each `environment(task)`, and keep what belongs to it in that object alone."
            return Finding("isolated", Level.PROBLEM, text, remedy)
    return Finding("isolated", Level.OK, "two episodes at a time do not disturb each other")


def worker_finding(pairs: Sequence[tuple[Played, Played]]) -> Finding:
    """Whether an episode goes the same way in a process of its own; each pair is there, and here."""
    for there, here in pairs:
        if there.course != here.course:
            text = f"in another process, {_describe(here)} gave {difference(here, there)}"
            return Finding("worker", Level.PROBLEM, text, WORKER_REMEDY)
    return Finding("worker", Level.OK, "episodes go the same way in a worker process and outside of one")


def json_play_finding(pairs: Sequence[tuple[Played, Played]]) -> Finding | None:
    """A problem where an episode on a task that was JSON goes another way; each pair is as given, and from JSON."""
    for given, read in pairs:
        if given.course != read.course:
            text = f"a task that was written to JSON and read again ({_describe(given)}) gave {difference(given, read)}"
            remedy = "Take lists where the data has tuples: JSON knows no other."
            return Finding("json", Level.PROBLEM, text, remedy)
    return None


def hold_finding(plays: Sequence[Sequence[Played]]) -> Finding:
    """Whether a call holds the event loop for long; each element has the plays of one episode."""
    calls = [(plays_of_one[0], call) for plays_of_one in plays for call in _fastest(plays_of_one)]
    one, worst = max(calls, key=lambda pair: pair[1].hold_s)
    text = f"a call holds all other episodes for {worst.hold_s * 1000:.1f} ms at most"
    if worst.hold_s < HELD_NOTE_S:
        return Finding("blocking", Level.OK, text)
    level = Level.NOTE if worst.hold_s < HELD_PROBLEM_S else Level.PROBLEM
    remedy = "Await what waits (`asyncio.sleep`, an async client), and hand long work to `asyncio.to_thread`."
    return Finding("blocking", level, f"{text} ({worst.name} of {_describe(one)})", remedy)


def time_finding(plays: Sequence[Sequence[Played]]) -> Finding:
    """How long a step takes."""
    steps = [
        call.seconds for plays_of_one in plays for call in _fastest(plays_of_one) if call.name not in (MADE, START)
    ]
    if not steps:
        return Finding("time of a step", Level.NOTE, "no step was made")
    text = f"{median(steps) * 1000:.2f} ms as a rule, {max(steps) * 1000:.1f} ms at most, of {len(steps)} steps"
    if max(steps) < STEP_NOTE_S:
        return Finding("time of a step", Level.OK, text)
    return Finding("time of a step", Level.NOTE, text, "A training step waits for the slowest episode: make it faster.")


def difference(first: Played, other: Played) -> str:
    """What is different in two episodes that should be the same, in words."""
    one, two = first.rollout, other.rollout
    if one.failure != two.failure:
        outcomes = (
            f"{rollout.failure}: {rollout.failure_detail:.120}" if rollout.failure else "no failure"
            for rollout in (one, two)
        )
        return " and then ".join(outcomes)
    if list(map(repr, one.turn_rewards)) != list(map(repr, two.turn_rewards)):
        return f"the rewards {_numbers(one.turn_rewards)} and then {_numbers(two.turn_rewards)}"
    for place, (here, there) in enumerate(zip(one.messages, two.messages, strict=False)):
        if here != there:
            return f"as message {place} {here['content']!r:.100} and then {there['content']!r:.100}"
    return f"{len(one.messages)} messages and then {len(two.messages)}"


def _fastest(plays: Sequence[Played]) -> list[Call]:
    return fastest([one.calls for one in plays])


def _numbers(rewards: Sequence[float]) -> str:
    return "[" + ", ".join(f"{reward:.6g}" for reward in rewards[:8]) + (", ...]" if len(rewards) > 8 else "]")


def _describe(one: Played) -> str:
    kind = "the script" if one.is_script else "the reply"
    return f"{kind} `{one.what}` on task `{one.rollout.task_id:.60}`"
