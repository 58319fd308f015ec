"""Episodes of one reply: the policy reads a request and functions, and calls the right ones, or none."""

from slimrl.types import Message, Turn
from slimrl_envs.bfcl.calls import opening, read_calls
from slimrl_envs.bfcl.package import MODEL, Entry, Verdict, ast_checker, python_language

IRRELEVANCE = "irrelevance"
# The errors that BFCL's checkers raise for arguments that they do not expect.
UNREADABLE = (AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def check_reply(entry: Entry, reply: str) -> Verdict:
    """Return BFCL's verdict on a reply. In the category `irrelevance` a reply is right if it calls no function."""
    calls = read_calls(reply)
    if entry["category"] == IRRELEVANCE:
        return {"valid": not calls, "error_type": "irrelevance_error:decoder_success"}
    output, truth = [{name: arguments} for name, arguments in calls], entry["ground_truth"]
    try:
        return ast_checker()(entry["function"], output, truth, python_language(), entry["category"], MODEL)
    except UNREADABLE:
        return {"valid": False, "error_type": "ast_checker:failed"}


class SingleTurnEpisode:
    """An episode on a row of a single-turn category."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    async def start(self) -> list[Message]:
        """Return the request, with the functions as tools."""
        return opening(self._entry)

    async def step(self, reply: str) -> Turn:
        """Return the reward of the reply, 1 if BFCL's checker accepts it, else 0."""
        correct = float(check_reply(self._entry, reply)["valid"])
        metrics = {"correct": correct, self._entry["category"]: correct, "calls": float(len(read_calls(reply)))}
        return Turn(True, reward=correct, metrics=metrics)
