"""Teachers of every kind on a tiny model: what they score, how a run goes on without them, and a probe of the gap."""

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from slimrl.cli import run
from slimrl.config.reading.load import load
from slimrl.config.run import RLConfig
from slimrl.config.teacher import ServerTeacherConfig
from slimrl.errors import UserError
from slimrl.launch.parts import Parts, make_rl_parts
from slimrl.launch.sampling import make_orchestrator, make_room
from slimrl.launch.teacher import ModuleTeacher, make_distillation
from slimrl.monitor.console import RunConsole
from slimrl.monitor.sinks import read_metrics
from slimrl.orchestrator.distill import Distillation, as_read
from slimrl.orchestrator.teacher_server import ServerTeacher
from slimrl.types import Sample, SamplingParams
from tests.commands.test_rl import rl_flags
from tests.io.replying import Answer, Asked, server
from tests.reproducible import is_reproducible
from tests.tiny import tiny_model_dir

ENVIRONMENT = """
from slimrl.types import Turn
from slimrl.types import Task

class Hints:
    def __init__(self, hint=""):
        self.hint = hint
    def tasks(self, split):
        return [Task(f"{split}/{n}", {"n": n}) for n in range(8)]
    def environment(self, task):
        return Episode(self.hint, task.data["n"])

class Episode:
    def __init__(self, hint, n):
        self.hint, self.n, self.turns = hint, n, 0
    async def start(self):
        return [{"role": "user", "content": f"{self.hint}task {self.n}"}]
    async def step(self, reply):
        self.turns += 1
        if self.turns == 1:
            return Turn(done=False, messages=[{"role": "user", "content": "and?"}])
        return Turn(done=True, reward=float(len(reply)) / 10)
"""
PURE = ["--trainer.loss.adv_tau", "0", "--trainer.loss.teacher_tau", "1", "--trainer.loss.student_tau", "1"]
HINT = ["--teacher.env_args", '{hint = "the answer is known to be short. "}']


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("environment") / "hints.py"
    path.write_text(ENVIRONMENT)
    return f"{path}:Hints"


SIZES = "--max_steps 4 --seq_len 200 --ckpt.interval_steps 1 --warmup.max_steps 0 --eval.interval_steps 0"
LOSS = "--trainer.loss.type aipo --trainer.optim.lr 0.003 --model.device cpu"


def flags(model: Path, environment: str, output_dir: Path, *more: str) -> list[str]:
    env = ["--orchestrator.env", environment]
    return [*rl_flags(model, output_dir, *SIZES.split(), *LOSS.split(), *env, *more)][1:]


@pytest.fixture
def parts_of(tiny_dir: Path, environment: str, tmp_path: Path) -> Callable[..., Parts]:
    """Return a function that makes the parts of a run with these flags."""

    def make(*more: str) -> Parts:
        argv = flags(tiny_dir, environment, tmp_path, *more)
        return make_rl_parts(load(RLConfig, argv, {}).config, tmp_path, RunConsole())

    return make


def itself(parts: Parts, micro_batch_tokens: int = 4096) -> ModuleTeacher:
    """Return the policy as its own teacher."""
    return ModuleTeacher(lambda: parts.policy.module, micro_batch_tokens, partial(make_room, parts))


def reproducible(output_dir: Path) -> list[tuple[int, dict[str, float | None]]]:
    """All that must be equal; an interval that does not exist, nan, as None."""
    lines = read_metrics(output_dir / "metrics.jsonl")
    return [
        (step, {k: None if math.isnan(v) else v for k, v in metrics.items() if is_reproducible(k)})
        for step, metrics in lines
    ]


def a_sample(token_ids: list[int], trained: list[int]) -> Sample:
    nothing = (0.0,) * len(token_ids)
    return Sample(tuple(token_ids), tuple(t in trained for t in range(len(token_ids))), nothing, nothing, 0)


SAMPLES = [
    a_sample([5, 6, 7, 8, 9, 10, 11, 12], [3, 4, 6, 7]),
    a_sample([5, 6, 7, 8, 20, 10, 11, 13, 14], [3, 4, 6, 7]),
    a_sample([30, 31], [1]),
]


def naive_scores(model: Path, temperature: float) -> list[list[float]]:
    module = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    scores = []
    for sample in SAMPLES:
        with torch.no_grad():
            logits = module(torch.tensor([sample.token_ids_T])).logits[0] / temperature
        logprobs = logits.log_softmax(-1)
        trained = [t for t, mask in enumerate(sample.loss_mask_T) if mask]
        scores.append([float(logprobs[t - 1, sample.token_ids_T[t]]) for t in trained])
    return scores


@pytest.fixture(scope="module")
def larger_dir(tiny_dir, tmp_path_factory):
    """A wider and deeper model with the vocabulary of `tiny_dir`."""
    directory = tmp_path_factory.mktemp("models") / "larger"
    shape = AutoConfig.from_pretrained(tiny_dir, hidden_size=48, intermediate_size=96, num_hidden_layers=3)
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(shape).save_pretrained(directory)
    AutoTokenizer.from_pretrained(tiny_dir).save_pretrained(directory)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_teacher_in_this_process_scores_as_transformers_does(tiny_dir, larger_dir, parts_of, temperature):
    parts = parts_of("--teacher.type", "model", "--teacher.name", str(larger_dir), *PURE)
    larger = make_distillation(parts).teacher
    for teacher, model in ((itself(parts), tiny_dir), (itself(parts, 8), tiny_dir), (larger, larger_dir)):
        for ours, theirs in zip(teacher.score(SAMPLES, temperature), naive_scores(model, temperature), strict=True):
            assert ours == pytest.approx(theirs, abs=1e-4)


@pytest.mark.slow
def test_the_same_weights_with_the_same_context_give_no_signal(parts_of):
    parts = parts_of("--teacher.type", "model", *PURE)
    batch = make_orchestrator(parts, Distillation(itself(parts), (), parts.context, 400)).collect(0)
    assert len(batch.samples) == 8
    assert max(abs(value) for sample in batch.samples for value in sample.advantages_T) < 1e-5
    assert abs(batch.metrics["distill/reverse_kl"]) < 1e-5


@pytest.mark.slow
def test_the_expected_signal_is_minus_the_kl_of_student_from_teacher(tiny_dir, parts_of):
    """It gives all tokens of the vocabulary, one after the other, in the place of a single sampled token."""
    teacher = itself(parts_of())
    prompt, opening = (5, 6, 7), (40, 41, 42, 43, 5, 6, 7)
    samples = [a_sample([*prompt, token], [3]) for token in range(300)]
    student = torch.tensor(teacher.score(samples, 1.0), dtype=torch.float64)[:, 0]
    theirs = torch.tensor(teacher.score([as_read(s, opening) for s in samples], 1.0), dtype=torch.float64)[:, 0]
    expected = float((student.exp() * (theirs - student)).sum())
    module = AutoModelForCausalLM.from_pretrained(tiny_dir, dtype=torch.float32)
    with torch.no_grad():
        log_s, log_t = (module(torch.tensor([ids])).logits[0, -1].log_softmax(-1) for ids in (prompt, opening))
    assert expected == pytest.approx(-float((log_s.exp() * (log_s - log_t)).sum()), abs=1e-4)
    assert expected < -0.01


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["policy", "model", "larger model"])
def test_a_run_distils_and_resumes_to_the_last_bit(tiny_dir, larger_dir, environment, tmp_path, kind):
    if kind == "larger model":
        teacher = ["--teacher.type", "model", "--teacher.name", str(larger_dir), *PURE]
    else:
        teacher = ["--teacher.type", kind, *HINT, *PURE]
    assert run(["rl", *flags(tiny_dir, environment, tmp_path / "whole", *teacher)]) == 0
    lines = read_metrics(tmp_path / "whole" / "metrics.jsonl")[:4]
    assert all(metrics["distill/reverse_kl"] != 0 and metrics["rollout/num_trained"] == 8 for _, metrics in lines)
    (tmp_path / "broken").mkdir()
    halves = flags(tiny_dir, environment, tmp_path / "broken", *teacher)
    with crashing_after(tmp_path / "broken", 2):
        assert run(["rl", *halves]) == 2
    assert run(["rl", *halves, "--resume"]) == 0
    assert reproducible(tmp_path / "broken") == reproducible(tmp_path / "whole")


@contextmanager
def crashing_after(output_dir: Path, steps: int) -> Iterator[None]:
    """Has the teacher fail at that step of the run."""
    score = ModuleTeacher.score

    def until(self: ModuleTeacher, samples: list[Sample], temperature: float) -> list[list[float]]:
        if (output_dir / "checkpoints" / f"step_{steps}").exists():
            raise UserError("the teacher is ill")
        return score(self, samples, temperature)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModuleTeacher, "score", until)
        yield


@pytest.mark.slow
def test_the_teacher_of_a_frozen_start_is_the_warmed_up_model(tiny_dir, tmp_path, environment):
    env = ["--orchestrator.env", '[{id="reverse-text"}]', "--warmup.max_steps", "2", "--warmup.optim.lr", "0.01"]
    argv = flags(tiny_dir, environment, tmp_path, *env, "--teacher.type", "model", *PURE, "--max_steps", "1")
    assert run(["rl", *argv]) == 0
    metrics = read_metrics(tmp_path / "metrics.jsonl")[0][1]
    assert abs(metrics["distill/reverse_kl"]) < 1e-5  # of the policy at the first step, which it is a copy of


@pytest.mark.slow
def test_a_teacher_with_another_vocabulary_is_refused(parts_of, tmp_path):
    other = tiny_model_dir(tmp_path, "qwen3", vocab_size=290)
    parts = parts_of("--teacher.type", "model", "--teacher.name", str(other))
    with pytest.raises(UserError, match="another vocabulary"):
        make_distillation(parts)


def echoed(body: dict, names: Callable[[int], str] = "token_id:{}".format) -> dict:
    """A right reply: every token of the prompt has log-probability -0.5, and a sampled one follows."""
    tokens = [*body["prompt"], 7]
    logprobs = {"tokens": [names(token) for token in tokens], "token_logprobs": [None, *[-0.5] * (len(tokens) - 1)]}
    return {"choices": [{"logprobs": logprobs}]}


def teacher_at(url: str) -> ServerTeacher:
    return ServerTeacher(ServerTeacherConfig(base_url=url, model="m", timeout_s=5.0))


def test_a_server_scores_token_ids(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # this machine is never asked through one
    with server(lambda asked: Answer(200, echoed(asked.body))) as (url, asked):
        assert teacher_at(url).score(SAMPLES[:1], 1.0) == [[-0.5] * 4]
    body = asked[0].body
    assert body["prompt"] == list(SAMPLES[0].token_ids_T)
    assert (body["echo"], body["max_tokens"], body["model"]) == (True, 1, "m")
    # Names that are no ids are not compared.
    with server(lambda asked: Answer(200, echoed(asked.body, lambda token: "the same text"))) as (url, _):
        assert teacher_at(url).score(SAMPLES[:1], 1.0) == [[-0.5] * 4]


WORDS = {5: " the", 6: "cat", 7: " sat", 8: "on"}
OTHERS = {5: " the", 6: "dog", 7: " lay", 8: "under"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (WORDS.get, ""),
        (lambda token: WORDS.get(token, "").replace(" ", "\u0120"), ""),
        ("token_id:{}".format, ""),
        (OTHERS.get, r"another vocabulary than the policy .'dog' for 'cat', ' lay' for ' sat'"),
    ],
)
def test_a_server_has_the_policys_vocabulary_if_it_names_most_tokens_alike(name, said):
    with (
        server(lambda asked: Answer(200, echoed(asked.body, name))) as (url, _),
        pytest.raises(UserError, match=said) if said else nullcontext(),
    ):
        teacher_at(url).check_vocabulary(WORDS)


def test_a_server_that_plays_samples_from_the_whole_distribution_and_returns_ids():
    with server(lambda _: Answer(200, {"choices": [{"token_ids": [9], "finish_reason": "stop"}]})) as (url, asked):
        assert asyncio.run(teacher_at(url).sample([5, 6], SamplingParams(4, 0.7))).token_ids == (9,)
    body = asked[0].body
    assert (body["top_p"], body["top_k"], body["min_p"], body["repetition_penalty"]) == (1.0, -1, 0.0, 1.0)
    with (
        server(lambda _: Answer(200, {"choices": [{"text": "7", "finish_reason": "stop"}]})) as (url, _),
        pytest.raises(UserError, match="return_token_ids"),
    ):
        asyncio.run(teacher_at(url).sample([5, 6], SamplingParams(4)))


def without_echo(body: dict) -> dict:
    return {"choices": [{"logprobs": {"tokens": ["token_id:7"], "token_logprobs": [-0.5]}}]}


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda body: (200, {"choices": [{"logprobs": None}]}), "gave no log-probabilities"),
        (lambda body: (200, without_echo(body)), "gave no log-probabilities"),
        (lambda body: (200, echoed(body | {"prompt": body["prompt"][::-1]})), "other tokens than it was sent"),
        (lambda body: (404, {"error": "no model m"}), r"no model m.*teacher\.model"),
        (lambda body: (401, {"error": "who are you"}), "TEACHER_API_KEY"),
        (lambda body: (400, {"error": "maximum context length is 4"}), r"maximum context.*teacher\.seq_len"),
    ],
)
def test_a_server_that_answers_otherwise_stops_the_run(answer, complaint):
    with (
        server(lambda asked: Answer(*answer(asked.body))) as (url, _),
        pytest.raises(UserError, match=complaint) as caught,
    ):
        teacher_at(url).score(SAMPLES[:1], 1.0)
    assert "--resume" in str(caught.value)


@pytest.mark.nightly
def test_a_run_whose_teacher_dies_goes_on_when_it_is_back(tiny_dir, environment, tmp_path, capsys):
    def teacher(url: str) -> list[str]:
        more = ["--teacher.type", "server", "--teacher.base_url", url, "--teacher.model", "tiny"]
        return [*more, "--teacher.timeout_s", "30", *HINT, *PURE]

    checkpoint, asked_in_vain = tmp_path / "broken" / "checkpoints" / "step_2", []

    def answer(asked: Asked) -> Answer:
        if checkpoint.exists() and not asked_in_vain:
            asked_in_vain.append(asked.body)
            return Answer(404, {"error": "gone"})
        return Answer(200, echoed(asked.body))

    with server(answer) as (url, _):
        assert run(["rl", *flags(tiny_dir, environment, tmp_path / "whole", *teacher(url))]) == 0
        broken = flags(tiny_dir, environment, tmp_path / "broken", *teacher(url))
        assert run(["rl", *broken]) == 2
        assert "--resume" in capsys.readouterr().err and asked_in_vain
        assert run(["rl", *broken, "--resume"]) == 0
    assert reproducible(tmp_path / "broken") == reproducible(tmp_path / "whole")
