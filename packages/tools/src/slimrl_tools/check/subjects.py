"""Defines the subjects of `slimrl check`, and makes the findings on them.

docs/environment_details.md explains each subject; a test compares that page with `REMEDIES`.
"""

from slimrl_tools.findings import Finding, Level

# The remedy for a problem with each subject. It is empty if the finding names its own remedy, or if the subject never
# has a problem.
REMEDIES = {
    # Tasks.
    "tasks": "Give a list of `slimrl.Task`s, or take other arguments (`--args`).",
    "time of tasks": "Make them once and keep them: they are asked for several times.",
    "ids": "Number the tasks, or name each after what it holds.",
    "json": "Hold texts, numbers, lists and dictionaries with texts as keys, and nothing else.",
    "splits": "Let a hash of the task decide its split, or keep the seeds of a generator far apart.",
    "same tasks": "Draw from a generator of your own with a fixed seed, made anew in each call: "
    '`random.Random("name")`.',
    "other process": "Never use `hash()` of a text or the order of a set: take `hashlib`, and `sorted(...)`.",
    # Messages and tools.
    "opening": "Begin with a system or user message, and end with what the policy is to answer.",
    "tools": "Answer a call that cannot be made with a message that says why, as `slimrl.tools.base` does.",
    "expert's calls": "",
    # Rewards.
    "expert": "Mend the script or the environment: an expert's episode must not fail.",
    "random play": "The reward does not tell right from wrong: mend it.",
    "constant answer": "",
    "doing nothing": "Give nothing without an answer: a policy learns to be silent where that pays.",
    "pay of garbage": "Bound the reward, and read a reply in one way: the first answer counts, and what is no answer "
    "earns 0.",
    "copying": "Take the answer out of the prompt, and compare whole answers rather than look for one in the reply.",
    # The course of episodes.
    "crash": "Catch what ends the process: `exit`, `os._exit`, memory that runs out, a fault in C.",
    "hang": "Bound every wait, loop and regular expression; the limit of a call is `episode_timeout_s`.",
    "reward": "Give a finite number: look for a division by 0, or a mean of nothing.",
    "garbage": "Take any text for a reply: answer what cannot be read with a message, or end the episode with 0.",
    "metrics": "Leave a metric out where it has no value: it is averaged over the other episodes.",
    "ends": "Give `Turn(done=True)` for the last reply; or this was too short: raise --max_turns.",
    "repeatable": 'Draw from `random.Random(f"{task.id}")` in each episode.',
    "isolated": "Make a new episode in each `environment(task)`, and keep what belongs to it in that object alone.",
    "worker": "Use no `hash()` of texts, process ids or addresses, and nothing that only one process has.",
    "blocking": "Await what waits (`asyncio.sleep`, an async client), and hand long work to `asyncio.to_thread`.",
    "time of a step": "",
}
# The texts of findings without a fault.
FINE = {
    "ids": "unique within each split",
    "json": "what tasks hold survives JSON",
    "splits": "no task is in two of them",
    "same tasks": "the same at a second call",
    "other process": "the same in processes with other hash seeds",
    "opening": "a conversation that ends with a message to answer",
    "metrics": "all finite",
    "repeatable": "the same replies give the same episode again",
    "isolated": "two episodes at a time do not disturb each other",
    "worker": "episodes go the same way in a worker process and outside of one",
}


def verdict(subject: str, fault: str) -> Finding:
    """Return a problem with the description `fault`, or a good result if `fault` is empty."""
    return problem(subject, fault) if fault else ok(subject, FINE[subject])


def ok(subject: str, found: str) -> Finding:
    """Return a finding on something that works as it should."""
    return Finding(subject, Level.OK, found)


def note(subject: str, found: str, remedy: str = "") -> Finding:
    """Return a finding on something that works but could be better, or that could not be examined. `remedy` is
    advice."""
    return Finding(subject, Level.NOTE, found, remedy)


def problem(subject: str, found: str, remedy: str = "") -> Finding:
    """Return a finding on something broken. If `remedy` is empty, use the remedy in the table for `subject`."""
    return Finding(subject, Level.PROBLEM, found, remedy or REMEDIES.get(subject, "Read the message."))
