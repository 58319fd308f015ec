"""The subjects of `slimrl check`, each with the remedy of a problem and the text of a good result.

docs/environment_details.md explains each subject; a test compares this page with the table.
"""

from dataclasses import dataclass

from slimrl.monitor.findings import Finding, Level


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject of findings, with the remedy of a problem and the text of a finding without a fault."""

    name: str
    remedy: str = ""
    fine: str = ""

    def verdict(self, fault: str) -> Finding:
        """Return a problem with the description `fault`, or a good result if `fault` is empty."""
        return self.problem(fault) if fault else self.ok(self.fine)

    def ok(self, found: str) -> Finding:
        """Return a finding on something that works as it should."""
        return Finding(self.name, Level.OK, found)

    def note(self, found: str, remedy: str = "") -> Finding:
        """Return a finding on something that works but could be better, or that could not be examined."""
        return Finding(self.name, Level.NOTE, found, remedy)

    def problem(self, found: str, remedy: str = "") -> Finding:
        """Return a finding on something broken, with `remedy` or else the subject's own remedy."""
        return Finding(self.name, Level.PROBLEM, found, remedy or self.remedy)


# Tasks.
TASKS = Subject("tasks", "Give a list of `slimrl.Task`s, or take other arguments (`--args`).")
TIME_OF_TASKS = Subject("time of tasks", "Make them once and keep them: they are asked for several times.")
IDS = Subject("ids", "Number the tasks, or name each after what it holds.", "unique within each split")
JSON = Subject(
    "json",
    "Hold texts, numbers, lists and dictionaries with texts as keys, and nothing else.",
    "what tasks hold survives JSON",
)
SPLITS = Subject(
    "splits",
    "Let a hash of the task decide its split, or keep the seeds of a generator far apart.",
    "no task is in two of them",
)
SAME_TASKS = Subject(
    "same tasks",
    'Draw from a generator of your own with a fixed seed, made anew in each call: `random.Random("name")`.',
    "the same at a second call",
)
OTHER_PROCESS = Subject(
    "other process",
    "Never use `hash()` of a text or the order of a set: take `hashlib`, and `sorted(...)`.",
    "the same in processes with other hash seeds",
)
# Messages and tools.
OPENING = Subject(
    "opening",
    "Begin with a system or user message, and end with what the policy is to answer.",
    "a conversation that ends with a message to answer",
)
TOOLS = Subject("tools", "Answer a call that cannot be made with a message that says why, as `slimrl.tools.base` does.")
EXPERT_CALLS = Subject("expert's calls")
# Rewards.
EXPERT = Subject("expert", "Mend the script or the environment: an expert's episode must not fail.")
RANDOM_PLAY = Subject("random play", "The reward does not tell right from wrong: mend it.")
CONSTANT_ANSWER = Subject("constant answer")
SILENCE = Subject("doing nothing", "Give nothing without an answer: a policy learns to be silent where that pays.")
PAY_OF_GARBAGE = Subject(
    "pay of garbage",
    "Bound the reward, and read a reply in one way: the first answer counts, and what is no answer earns 0.",
)
COPYING = Subject(
    "copying", "Take the answer out of the prompt, and compare whole answers rather than look for one in the reply."
)
# The course of episodes.
CRASH = Subject("crash", "Catch what ends the process: `exit`, `os._exit`, memory that runs out, a fault in C.")
HANG = Subject("hang", "Bound every wait, loop and regular expression; the limit of a call is `episode_timeout_s`.")
REWARD = Subject("reward", "Give a finite number: look for a division by 0, or a mean of nothing.")
GARBAGE = Subject(
    "garbage", "Take any text for a reply: answer what cannot be read with a message, or end the episode with 0."
)
METRICS = Subject(
    "metrics", "Leave a metric out where it has no value: it is averaged over the other episodes.", "all finite"
)
ENDS = Subject("ends", "Give `Turn(done=True)` for the last reply; or this was too short: raise --max_turns.")
REPEATABLE = Subject(
    "repeatable",
    'Draw from `random.Random(f"{task.id}")` in each episode.',
    "the same replies give the same episode again",
)
ISOLATED = Subject(
    "isolated",
    "Make a new episode in each `environment(task)`, and keep what belongs to it in that object alone.",
    "two episodes at a time do not disturb each other",
)
WORKER = Subject(
    "worker",
    "Use no `hash()` of texts, process ids or addresses, and nothing that only one process has.",
    "episodes go the same way in a worker process and outside of one",
)
BLOCKING = Subject(
    "blocking", "Await what waits (`asyncio.sleep`, an async client), and hand long work to `asyncio.to_thread`."
)
TIME_OF_STEP = Subject("time of a step")
