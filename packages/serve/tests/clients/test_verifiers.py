"""verifiers 0.1.14, unmodified: real environments evaluated through our server, by its classic and its token client."""

from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import pytest

if find_spec("verifiers") is None:
    pytest.skip("verifiers has no package for this Python", allow_module_level=True)
import verifiers as vf
from datasets import Dataset
from verifiers.types import ClientConfig

from packages.serve.tests.clients.parrot import GUESS_QUESTION, GUESSES, SUM_ANSWER, SUM_QUESTION, WRONG
from packages.serve.tests.clients.serving import Reference, Server

pytestmark = pytest.mark.slow

CLIENTS = ("openai_chat_completions", "openai_chat_completions_token")
TOKENS = {"logprobs": True, "extra_body": {"return_token_ids": True}}


@pytest.fixture(autouse=True)
def no_progress_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TQDM_DISABLE", "1")


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


def dataset(question: str, answer: str) -> Dataset:
    return Dataset.from_list([{"prompt": [{"role": "user", "content": question}], "answer": answer}])


def evaluate(environment: vf.Environment, server: Server, client: str, **sampling: Any) -> list[dict[str, Any]]:
    """The results of two rollouts of every example, with their trajectories."""
    results = environment.evaluate_sync(
        client=ClientConfig(client_type=client, api_base_url=server.v1, max_retries=0),
        model=server.model,
        sampling_args={**TOKENS, "max_tokens": 200, **sampling},
        rollouts_per_example=2,
        state_columns=["trajectory", "error"],
    )
    assert [output["error"] for output in results["outputs"]] == [None] * len(results["outputs"])
    return results["outputs"]


def assert_as_sampled(reference: Reference, trajectory: list[dict[str, Any]]) -> None:
    """Assert that every turn has the sampled tokens with their log-probabilities."""
    for step in trajectory:
        tokens = step["tokens"]
        assert tokens["prompt_mask"] == [0] * len(tokens["prompt_ids"])
        assert tokens["completion_mask"] == [1] * len(tokens["completion_ids"])
        scores = reference.score(tokens["prompt_ids"], tokens["completion_ids"])
        assert tokens["completion_logprobs"] == pytest.approx(scores, abs=1e-3)


@pytest.mark.parametrize("client", CLIENTS)
def test_single_turn(parrot: Server, parrot_reference: Reference, client: str) -> None:
    environment = vf.SingleTurnEnv(dataset=dataset(SUM_QUESTION, SUM_ANSWER), rubric=vf.Rubric(funcs=[says]))
    outputs = evaluate(environment, parrot, client, temperature=0.0)
    assert [output["reward"] for output in outputs] == [1.0, 1.0]
    prompt = parrot_reference.policy.chat.opening([{"role": "user", "content": SUM_QUESTION}])
    for output in outputs:
        (step,) = output["trajectory"]
        assert step["tokens"]["prompt_ids"] == prompt
        assert step["tokens"]["completion_ids"][-1] == parrot_reference.policy.chat.end_of_turn
        assert_as_sampled(parrot_reference, output["trajectory"])


@pytest.mark.parametrize("client", CLIENTS)
def test_sampled_tokens_come_with_their_logprobs(server: Server, reference: Reference, client: str) -> None:
    environment = vf.SingleTurnEnv(dataset=dataset("Say it.", ""), rubric=vf.Rubric(funcs=[says]))
    # A random model may end its turn at once, which verifiers takes for a broken server.
    some = {"extra_body": {"return_token_ids": True, "min_tokens": 8}}
    outputs = evaluate(environment, server, client, temperature=1.0, max_tokens=32, seed=4, **some)
    for output in outputs:
        (step,) = output["trajectory"]
        assert len(step["tokens"]["completion_ids"]) >= 8
        # Before `min_tokens` no end can be drawn; the probabilities are those of what could.
        assert_as_sampled_after(reference, step["tokens"], 8)


def assert_as_sampled_after(reference: Reference, tokens: dict[str, Any], start: int) -> None:
    scores = reference.score(tokens["prompt_ids"], tokens["completion_ids"])
    assert tokens["completion_logprobs"][start:] == pytest.approx(scores[start:], abs=1e-3)


@pytest.mark.parametrize("client", CLIENTS)
def test_several_turns(parrot: Server, parrot_reference: Reference, client: str) -> None:
    environment = GuessingEnv(
        dataset=dataset(GUESS_QUESTION, GUESSES[-1]), rubric=vf.Rubric(funcs=[says]), max_turns=len(GUESSES)
    )
    for output in evaluate(environment, parrot, client, temperature=0.0):
        assert output["reward"] == 1.0 and output["metrics"]["num_turns"] == len(GUESSES)
        assert [message["content"] for message in output["completion"] if message["role"] == "assistant"] == list(
            GUESSES
        )
        assert_as_sampled(parrot_reference, output["trajectory"])
        assert_grows(output["trajectory"])


@pytest.mark.parametrize("client", CLIENTS)
def test_tools(parrot: Server, parrot_reference: Reference, client: str) -> None:
    environment = vf.ToolEnv(
        dataset=dataset(SUM_QUESTION, SUM_ANSWER), tools=[add], rubric=vf.Rubric(funcs=[says]), max_turns=4
    )
    for output in evaluate(environment, parrot, client, temperature=0.0):
        assert output["reward"] == 1.0
        assert output["metrics"]["add_calls"] == 1.0 and output["metrics"]["num_turns"] == 2
        assert [message["content"] for message in output["completion"] if message["role"] == "tool"] == ["42"]
        assert_as_sampled(parrot_reference, output["trajectory"])
        assert_grows(output["trajectory"])


def assert_grows(trajectory: list[dict[str, Any]]) -> None:
    """Assert that each prompt continues the tokens of the turn before, so that nothing is tokenized again."""
    for before, after in pairwise(trajectory):
        sofar = before["tokens"]["prompt_ids"] + before["tokens"]["completion_ids"]
        assert after["tokens"]["prompt_ids"][: len(sofar)] == sofar


def test_a_prompt_that_is_too_long_ends_the_rollout_without_an_error(server: Server) -> None:
    environment = vf.SingleTurnEnv(dataset=dataset("long " * 600, ""), rubric=vf.Rubric(funcs=[says]))
    for output in evaluate(environment, server, CLIENTS[0]):
        assert output["is_truncated"] and output["stop_condition"] == "prompt_too_long"
