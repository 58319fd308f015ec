"""verifiers 0.1.14, unmodified: real environments evaluated through our server, by its classic and its token client."""

from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

if find_spec("verifiers") is None:
    pytest.skip("verifiers has no package for this Python", allow_module_level=True)
import verifiers as vf
from datasets import Dataset
from verifiers.types import ClientConfig

from packages.serve.tests.clients.parrot import GUESS_QUESTION, GUESSES, SUM_ANSWER, SUM_QUESTION, WRONG
from packages.serve.tests.conftest import Reference
from slimrl_serve.command import InferenceServer

pytestmark = pytest.mark.slow

CLIENTS = ("openai_chat_completions", "openai_chat_completions_token")


class GuessingEnv(vf.MultiTurnEnv):
    """An environment that calls every guess wrong until the third."""

    async def env_response(self, messages: vf.Messages, state: vf.State, **kwargs: Any) -> vf.Messages:
        return [vf.UserMessage(content=WRONG)]


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def says(completion: vf.Messages, answer: str) -> float:
    """The reward: 1 if the last message is the answer."""
    return float(completion[-1].content == answer)


def asking(question: str, answer: str) -> dict[str, Any]:
    """The arguments of an environment with one task."""
    row = {"prompt": [{"role": "user", "content": question}], "answer": answer}
    return {"dataset": Dataset.from_list([row]), "rubric": vf.Rubric(funcs=[says])}


def evaluate(environment: vf.Environment, server: InferenceServer, client: str, **sampling: Any) -> Any:
    """The results of two rollouts of every example, with their trajectories."""
    results = environment.evaluate_sync(
        client=ClientConfig(client_type=client, api_base_url=f"{server.address}/v1", max_retries=0),
        model="tiny",
        sampling_args={"logprobs": True, "extra_body": {"return_token_ids": True}, "max_tokens": 200, **sampling},
        rollouts_per_example=2,
        state_columns=["trajectory", "error"],
    )
    assert [output["error"] for output in results["outputs"]] == [None] * 2
    return results["outputs"]


@pytest.fixture(scope="module")
def parrot_reference(parrot: InferenceServer) -> Reference:
    return Reference(Path(parrot.service.policy.source), capacity=1024)


@pytest.fixture(autouse=True)
def no_progress_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TQDM_DISABLE", "1")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("make", "replies"),
    [
        (lambda: vf.SingleTurnEnv(**asking(SUM_QUESTION, SUM_ANSWER)), [SUM_ANSWER]),
        (lambda: GuessingEnv(**asking(GUESS_QUESTION, GUESSES[-1]), max_turns=len(GUESSES)), [*GUESSES]),
        (lambda: vf.ToolEnv(**asking(SUM_QUESTION, SUM_ANSWER), tools=[add], max_turns=4), [SUM_ANSWER]),
    ],
    ids=["single turn", "several turns", "tools"],
)
def test_an_environment_has_the_sampled_tokens_and_log_probabilities(
    parrot: InferenceServer,
    parrot_reference: Reference,
    make: Callable[[], vf.Environment],
    replies: list[str],
    client: str,
) -> None:
    environment = make()
    uses_tools = isinstance(environment, vf.ToolEnv)
    for output in evaluate(environment, parrot, client, temperature=0.0):
        said = [message["content"] for message in output["completion"] if message["role"] == "assistant"]
        assert output["reward"] == 1.0 and output["metrics"]["num_turns"] == len(replies) + uses_tools
        assert said[-len(replies) :] == replies
        if uses_tools:
            assert output["metrics"]["add_calls"] == 1.0
            assert [message["content"] for message in output["completion"] if message["role"] == "tool"] == ["42"]
        trajectory = [step["tokens"] for step in output["trajectory"]]
        for tokens in trajectory:
            assert tokens["prompt_mask"] == [0] * len(tokens["prompt_ids"])
            assert tokens["completion_mask"] == [1] * len(tokens["completion_ids"])
            scores = parrot_reference.score(tokens["prompt_ids"], tokens["completion_ids"])
            assert tokens["completion_logprobs"] == pytest.approx(scores, abs=1e-3)
        for before, after in pairwise(trajectory):  # nothing is tokenized again
            so_far = before["prompt_ids"] + before["completion_ids"]
            assert after["prompt_ids"][: len(so_far)] == so_far


def test_a_prompt_that_is_too_long_ends_the_rollout_without_an_error(server: InferenceServer) -> None:
    for output in evaluate(vf.SingleTurnEnv(**asking("long " * 600, "")), server, CLIENTS[0]):
        assert output["is_truncated"] and output["stop_condition"] == "prompt_too_long"
