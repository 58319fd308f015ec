"""The contract of SLIME's custom generate function, and whole games through a router over HTTP."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from packages.envs.tests.episodes import replies_of
from packages.envs.tests.integrations.restated import (
    Sample,
    bare_args,
    check_trainable,
    generate_and_rm,
    sampling_params,
    slime_args,
)
from packages.envs.tests.integrations.router import ABORT, Policy, router
from packages.envs.tests.matching_game.rules.deals import new_deal
from slimrl.errors import RolloutError, UserError
from slimrl.types import Task, Taskset, Turn
from slimrl_envs.matching_game.analysis import analyze, read_run
from slimrl_envs.matching_game.environment import MatchingTaskset
from slimrl_envs.matching_game.rules.game_files import game_state
from slimrl_envs.sglang import Router
from slimrl_envs.slime.filter import no_failed_game
from slimrl_envs.slime.rollout import MatchingRollouts, generate
from slimrl_envs.slime.rows import Settings
from tests.rollout.scripted import CHAT, TOKENIZER

STATUS = Sample.Status


def tokens_of(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


def state(seed: int = 0, size: int = 3) -> dict[str, Any]:
    return game_state(new_deal(random.Random(seed), size, "g"))


def sample_of(seed: int = 0, **more: Any) -> Sample:
    return Sample(index=5, group_index=0, prompt="of the row", metadata=state(seed), **more)


def proposal(assignment: tuple[int, ...] = (0, 1, 2)) -> str:
    papers, reviewers = ("BLEU", "Electra", "GloVe"), ("Ava", "Daniel", "Sofia")
    return "[propose]\n" + "\n".join(f"{papers[k]}: {reviewers[who]}" for k, who in enumerate(assignment))


def played(tiny_dir: Path, policy: Policy, sample: Sample, params: Any = None, **args: Any) -> Any:
    """The sample, and what the router said for it."""
    with router(CHAT, tokens_of, policy) as (port, said):
        arguments = slime_args(str(tiny_dir), port, **args)
        result = asyncio.run(generate_and_rm(generate, arguments, sample, params or sampling_params()))
    return result, said


def check_tokens(sample: Sample, said: Any) -> None:
    """What the router said, and nothing else, is marked as the policy's, token for token; each request was the whole
    conversation so far."""
    begin = len(sample.tokens) - sample.response_length
    own = [token for token, mask in zip(sample.tokens[begin:], sample.loss_mask, strict=True) if mask]
    logprobs = [value for value, mask in zip(sample.rollout_log_probs, sample.loss_mask, strict=True) if mask]
    kept = [turn for turn in said if turn.finish != ABORT]
    assert own == [token for turn in kept for token in turn.token_ids]
    assert logprobs == [value for turn in kept for value in turn.logprobs]
    for turn in said:
        assert sample.tokens[: len(turn.prompt)] == turn.prompt
    assert said[0].prompt == sample.tokens[:begin]


def test_the_contract_holds_for_args_and_a_sample_that_know_nothing(caplog: pytest.LogCaptureFixture) -> None:
    sample = Sample(index=0, prompt="prompt")
    result = asyncio.run(generate_and_rm(generate, bare_args(), sample, {"temperature": 0.3}))
    assert result is sample
    check_trainable(result)
    assert result.status == STATUS.FAILED and result.remove_sample
    assert "sglang_router_ip" in result.metadata["failure"]
    assert "sglang_router_ip" in caplog.text


STUBBED = """
import sys, types
stub = types.ModuleType("transformers")
stub.AutoTokenizer = type("AutoTokenizer", (), {"from_pretrained": staticmethod(lambda *a, **k: object())})
stub.PreTrainedTokenizerBase = type("PreTrainedTokenizerBase", (), {})
sys.modules["transformers"] = stub
import asyncio
from slimrl_envs.slime.rollout import generate
from packages.envs.tests.episodes import replies_of
from packages.envs.tests.integrations.restated import Sample, bare_args, check_trainable, generate_and_rm
sample = asyncio.run(generate_and_rm(generate, bare_args(), Sample(prompt="prompt"), {"temperature": 0.3}))
check_trainable(sample)
print(sample.metadata["failure"])
"""


@pytest.mark.slow
def test_the_contract_holds_with_a_stub_in_the_place_of_transformers() -> None:
    """As SLIME's own tests of it run."""
    command = [sys.executable, "-c", STUBBED]
    done = subprocess.run(command, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "sglang_router_ip" in done.stdout


def test_a_whole_game_is_the_one_that_the_expert_shows(tiny_dir: Path) -> None:
    game = state(seed=3)
    conversation = MatchingTaskset(max_turns=20).scripts["solver"](Task("slime/0", {"game_state": game}), 0)
    replies = replies_of(conversation)
    sample = Sample(index=5, group_index=0, prompt="of the row", metadata={"more": 1}, label={"game_state": game})
    result, said = played(tiny_dir, lambda text, turn: replies[turn], sample)
    assert result is sample
    check_trainable(result)
    check_tokens(result, said)
    token_ids, mask = CHAT.encode_conversation(conversation)
    assert result.tokens == token_ids
    assert result.loss_mask == [int(trained) for trained in mask[-result.response_length :]]
    assert result.status == STATUS.COMPLETED and not result.remove_sample
    assert result.reward == result.metadata["score"] > 0.0
    assert result.metadata["turns"] == len(replies) == len(said)
    assert result.metadata["questions"] == result.metadata["metrics"]["questions"] > 0
    assert result.metadata["failure"] == "" and result.metadata["evaluation"] is False
    assert result.metadata["more"] == 1
    assert result.weight_versions == ["7"] * len(said)
    assert (result.index, result.group_index) == (5, 0)
    assert result.prompt == CHAT.full_text(said[0].prompt)
    assert result.response == CHAT.full_text(result.tokens[len(said[0].prompt) :])


@pytest.mark.slow
def test_random_games_keep_mask_logprobs_and_lengths(tiny_dir: Path) -> None:
    rng = random.Random(0)
    pieces = [
        lambda: proposal(tuple(rng.sample(range(3), 3))),
        lambda: "[accept]",
        lambda: "[reject]",
        lambda: "[message] What is the score of Ava for BLEU?",
        lambda: "no tag at all",
        lambda: "[message] \u00e9\u4e16\U0001f600 " + "long " * rng.randrange(60),
    ]
    seen = set()
    for seed in range(12):
        size = rng.choice((None, 400, 900, 4000))
        context = size and size + 1500
        limits = {"max_new_tokens": rng.choice((60, 300, 4000))}
        sample = sample_of(seed)
        result, said = played(
            tiny_dir,
            lambda text, turn: rng.choice(pieces)(),
            sample,
            sampling_params(**limits),
            rollout_max_context_len=context,
            matching_turn_tokens=rng.choice((None, 40)),
            matching_args={"max_errors": 3},
        )
        check_trainable(result)
        check_tokens(result, said)
        assert result.response_length <= limits["max_new_tokens"]
        assert context is None or len(result.tokens) <= context
        assert result.status in (STATUS.COMPLETED, STATUS.TRUNCATED)
        seen.add(result.status)
    assert seen == {STATUS.COMPLETED, STATUS.TRUNCATED}


def test_an_aborted_game_begins_anew(tiny_dir: Path) -> None:
    result, said = played(
        tiny_dir, lambda text, turn: ABORT if turn else "[message] Which scores do you have?", sample_of()
    )
    check_trainable(result)
    check_tokens(result, said)
    assert result.status == STATUS.ABORTED and result.remove_sample
    assert "aborted" in result.metadata["failure"]
    again, said = played(tiny_dir, lambda text, turn: proposal(), result, sampling_params(max_new_tokens=2000))
    assert again is result
    check_trainable(again)
    check_tokens(again, said)
    assert again.status in (STATUS.COMPLETED, STATUS.TRUNCATED) and not again.remove_sample
    assert again.metadata["failure"] == ""


def test_a_sampled_token_is_never_tokenised_again(tiny_dir: Path) -> None:
    """The router says `[message] hi?` in single bytes, which is not how the tokenizer would write it."""
    odd = [token for piece in "[message] hi?" for token in tokens_of(piece)]
    assert odd != tokens_of("[message] hi?")
    with router(CHAT, lambda text: odd if text == "odd" else tokens_of(text), lambda text, turn: "odd") as (port, said):
        arguments = slime_args(str(tiny_dir), port, max_turns=4)
        result = asyncio.run(generate_and_rm(generate, arguments, sample_of(), sampling_params()))
    check_tokens(result, said)
    begin = len(said[0].prompt)
    assert result.tokens[begin : begin + len(odd)] == odd


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sglang_router_ip": None}, "args have no sglang_router_ip: SLIME sets it when it starts its router"),
        ({"sglang_router_port": None}, "args have no sglang_router_port"),
        ({"hf_checkpoint": None}, "args have no hf_checkpoint: set --hf-checkpoint"),
        ({"hf_checkpoint": "/nowhere"}, "no tokenizer could be loaded from --hf-checkpoint /nowhere"),
        ({"use_rollout_routing_replay": True}, "--use-rollout-routing-replay has no effect"),
        ({"matching_log_dir": "logs"}, "there is no setting `matching_log_dir`"),
        ({"matching_timeout_s": -1}, "args.matching_timeout_s is -1: Input should be greater than 0"),
        ({"matching_args": "scripted"}, "args.matching_args is 'scripted': Input should be a valid dictionary"),
        *(
            ({"matching_args": {key: value}}, message)
            for key, value, message in (
                ("partner", "nobody", "there is no `partner` 'nobody'"),
                ("n", 8, "matching_args.n cannot act: games come from --prompt-data"),
                ("thoughts", True, "matching_args.thoughts cannot act: it is for slimrl's warm-up"),
                ("max_turns", 8, "matching_args.max_turns cannot act: max_turns stands by itself"),
                ("partner", "self", 'matching_args.partner = "self" cannot act: SLIME plays one side'),
            )
        ),
        # Settings and rows with which no sample could be played.
        (Sample(index=7, prompt="prompt"), "sample 7 has no game: neither its metadata nor its label"),
        (
            Sample(index=7, metadata={"table": [[1]]}),
            "the game_state of sample slime/7 is no game: mask1: Field required",
        ),
        ({"rollout_max_context_len": 50}, "leaves no room for a reply"),
        ([("max_new_tokens", None)], "nothing bounds the length of a game"),
        ([("custom_params", {"return_top_p_token_ids": True})], "Set --rollout-top-p 1"),
    ],
)
def test_a_missing_or_wrong_setting_is_named(change: Any, message: str, tiny_dir: Path) -> None:
    args, sample, params = slime_args(str(tiny_dir), 1), sample_of(), sampling_params()
    if isinstance(change, Sample):
        sample = change
    else:
        (params if isinstance(change, list) else vars(args)).update(change)
    with pytest.raises(UserError) as error:
        asyncio.run(generate(args, sample, params))
    assert message in str(error.value)


@contextmanager
def rollouts_of(taskset: Taskset, reply: str, **settings: Any) -> Iterator[MatchingRollouts]:
    """Rollouts of a taskset whose policy gives the same reply to everything."""
    with router(CHAT, tokens_of, lambda text, turn: reply) as (port, _):
        yield MatchingRollouts(taskset, CHAT, Router(f"http://127.0.0.1:{port}"), Settings(**settings))


class Falling(Taskset):
    """A taskset whose partner fails, at the start or in the second turn."""

    def __init__(self, at_start: bool) -> None:
        self.at_start, self.closed = at_start, 0

    def tasks(self, split: str) -> list[Task]:
        return []

    def environment(self, task: Task) -> "Falling":
        return self

    async def start(self) -> Any:
        if self.at_start:
            raise RolloutError("partner_timeout", "no answer in 60 s")
        return [{"role": "user", "content": "begin"}]

    async def step(self, reply: str) -> Turn:
        raise RolloutError("partner_timeout", "no answer in 60 s")

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("at_start", [True, False])
def test_a_partner_that_fails_makes_a_sample_that_is_not_trained(at_start: bool) -> None:
    taskset = Falling(at_start)
    with rollouts_of(taskset, "hello") as rollouts:
        result = asyncio.run(generate_and_rm(rollouts.generate, bare_args(), sample_of(), sampling_params()))
    check_trainable(result)
    assert result.status == STATUS.FAILED and result.remove_sample and result.reward == 0.0
    assert result.metadata["failure"] == "partner_timeout: no answer in 60 s"
    assert taskset.closed == 1
    assert sum(result.loss_mask) == (0 if at_start else len(tokens_of("hello")) + 1)
    cut = Sample(index=2, reward=0.0, status=STATUS.TRUNCATED)
    assert no_failed_game(bare_args(), [cut, cut]) and not no_failed_game(bare_args(), [cut, result], extra="more")


@pytest.mark.slow
def test_what_a_run_leaves_is_analyzed(tiny_dir: Path, tmp_path: Path) -> None:
    save = tmp_path / "matching_slime"
    for group in range(2):
        for _ in range(2):
            sample = Sample(index=2 * group, group_index=group, prompt="p", metadata=state(group))
            replies = replies_of(MatchingTaskset().scripts["solver"](Task("slime/0", {"game_state": state(group)}), 0))
            played(tiny_dir, lambda text, turn: replies[turn], sample, save=str(save), rollout_batch_size=1)  # noqa: B023
    files = sorted(path.name for path in (save / "rollouts").iterdir())
    assert files == ["step_000000.jsonl", "step_000001.jsonl"]
    run = read_run(save)
    assert [game.step for game in run.games] == [0, 0, 1, 1] and run.num_left_out == 0
    assert {game.task_id for game in run.games} == {f"slime/{group}" for group in range(2)}
    assert all(game.values["before"] and game.values["reward"] > 0 for game in run.games)
    written = analyze([save], tmp_path / "plots")
    assert all(path.is_file() for path in written)
