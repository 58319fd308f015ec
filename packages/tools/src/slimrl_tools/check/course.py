"""Checks the course of episodes: whether they fail, finish, block other episodes, and can be repeated."""

import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from slimrl_tools.check.subjects import REMEDIES, note, ok, problem, verdict
from slimrl_tools.check.trial import SCRIPT_ERROR, Played
from slimrl_tools.findings import Finding

HELD_NOTE_S, HELD_PROBLEM_S = 0.1, 0.5
STEP_NOTE_S = 1.0
LEFT = "partner_left"  # not a fault: in self-play, the player that uses up its turns first leaves the game
# The subject of the finding for each of these failure reasons.
FAILURES = {
    "environment_died": "crash",
    "environment_lost": "crash",
    "timeout": "hang",
    "nonfinite_reward": "reward",
    "prompt_too_long": "opening",
}
NOT_STARTED = "Mend `start`: it gives messages with a role and a text as content, the last one for the policy."


def failure_findings(played: Sequence[Played]) -> Iterator[Finding]:
    """Yield a problem for each subject with failed episodes, which describes the first failure. Also yield a finding on
    the useless replies (`garbage`), and one on non-finite metrics (`metrics`)."""
    failed: dict[str, list[Played]] = {}
    for one in played:
        if one.rollout.failure and one.rollout.failure != LEFT:
            failed.setdefault(_subject_of(one), []).append(one)
    for subject, (first, *others) in failed.items():
        detail = first.rollout.failure_detail or first.rollout.failure
        text = f"{1 + len(others)} of {len(played)} episodes failed; the first with {first}: {detail}"
        yield problem(subject, text, NOT_STARTED if subject == "opening" else "")
    if "garbage" not in failed:
        kinds = len({one.what for one in played if one.kind != "script"})
        yield ok("garbage", f"{kinds} kinds of useless replies break nothing")
    metrics = ((name, value, one) for one in played for name, value in one.rollout.metrics.items())
    odd = (f"`{name}` is {value} with {one}" for name, value, one in metrics if not math.isfinite(value))
    yield verdict("metrics", next(odd, ""))


def _subject_of(failed: Played) -> str:
    """Return the subject of the finding on a failed episode."""
    failure = failed.rollout.failure
    if failure in FAILURES:
        return FAILURES[failure]
    if failure not in ("environment_error", SCRIPT_ERROR):
        return failure.replace("_", " ")  # such as a judge that does not answer
    if not failed.rollout.turns and failure == "environment_error":
        return "opening"
    return "expert" if failed.kind == "script" else "garbage"


def end_findings(played: Sequence[Played], max_turns: int) -> Iterator[Finding]:
    """Yield a finding on whether episodes finish by themselves, that is before the limit of turns. All scripted
    episodes must finish. If there are no scripted episodes, at least one other episode must finish. Yield nothing if
    every episode failed."""
    whole = [one for one in played if not one.rollout.failure]
    if scripts := [one for one in whole if one.kind == "script"]:
        if endless := [one for one in scripts if not one.is_finished]:
            yield problem("ends", f"the episode of {endless[0]} did not end within {max_turns} turns")
        else:
            longest = max(len(one.rollout.turns) for one in scripts)
            yield ok("ends", f"every script's episode ends, after {longest} turns at most")
    elif any(one.is_finished for one in whole):
        yield ok("ends", "episodes end by themselves")
    elif whole:
        yield note("ends", f"no episode ended within {max_turns} turns", REMEDIES["ends"])


def deviation(pairs: Iterable[tuple[Played, Played]], text: str) -> str:
    """Return a text on the first pair of episodes that differ; empty if all pairs are equal. The result is `text`, with
    the first episode in place of `{who}` and the difference in place of `{what}`."""
    for one, other in pairs:
        if one.course != other.course:
            return text.format(who=one, what=_difference(one, other))
    return ""


def time_findings(plays: Sequence[Sequence[Played]]) -> Iterator[Finding]:
    """Yield findings on how long an episode blocks the event loop, and on the duration of an environment step. Of the
    several plays of each episode the fastest counts, since other programs can only slow an episode down."""
    holds = [(min(play.hold_s for play in repeated), repeated[0]) for repeated in plays]
    hold_s, longest = max(holds, key=lambda pair: pair[0])
    text = f"an episode holds all others for {hold_s * 1000:.1f} ms at most"
    if hold_s < HELD_NOTE_S:
        yield ok("blocking", text)
    elif hold_s < HELD_PROBLEM_S:
        yield note("blocking", f"{text} ({longest})", REMEDIES["blocking"])
    else:
        yield problem("blocking", f"{text} ({longest})")
    # The first time in `env_s` belongs to the start of the environment.
    steps = [
        min(times) for repeated in plays for times in zip(*(play.rollout.env_s[1:] for play in repeated), strict=False)
    ]
    if not steps:
        yield note("time of a step", "no step was made")
        return
    text = f"{median(steps) * 1000:.2f} ms as a rule, {max(steps) * 1000:.1f} ms at most, of {len(steps)} steps"
    if max(steps) < STEP_NOTE_S:
        yield ok("time of a step", text)
    else:
        yield note("time of a step", text, "A training step waits for the slowest episode: make it faster.")


def _difference(first: Played, other: Played) -> str:
    """Describe the first difference between two episodes."""
    one, two = first.rollout, other.rollout
    if one.failure != two.failure:
        outcomes = (f"{it.failure}: {it.failure_detail:.120}" if it.failure else "no failure" for it in (one, two))
        return " and then ".join(outcomes)
    if list(map(repr, one.turn_rewards)) != list(map(repr, two.turn_rewards)):
        rewards = ([float(f"{reward:.6g}") for reward in it.turn_rewards[:8]] for it in (one, two))
        return f"the rewards {' and then '.join(map(str, rewards))}"
    for place, (here, there) in enumerate(zip(one.messages, two.messages, strict=False)):
        if here != there:
            return f"as message {place} {here['content']!r:.100} and then {there['content']!r:.100}"
    return f"{len(one.messages)} messages and then {len(two.messages)}"
