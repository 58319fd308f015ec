"""lm-eval, unmodified, as its command line runs it: `--model local-completions` on a task of two local files."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.inference.clients.serving import Reference, Server

pytestmark = pytest.mark.slow  # each imports all of lm-eval
COMMON = """\
dataset_path: json
dataset_kwargs:
  data_files:
    test: {questions}
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
metadata:
  version: 1
"""
LOGLIKELIHOOD = """\
task: local_loglikelihood
output_type: loglikelihood
metric_list:
  - metric: acc
  - metric: perplexity
"""
GENERATE = """\
task: local_generate
output_type: generate_until
generation_kwargs:
  until: ["e"]
  max_gen_toks: 12
  temperature: 0.0
metric_list:
  - metric: exact_match
"""
QUESTIONS = [
    {"question": "The capital of France is", "answer": " Paris."},
    {"question": "The quick brown fox", "answer": " jumps over the lazy dog."},
    {"question": "user", "answer": " system assistant"},
    {"question": "reverse the text, then", "answer": " give the answer in tags."},
]


@pytest.fixture(scope="module")
def task_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tasks")
    questions = directory / "questions.jsonl"
    questions.write_text("".join(json.dumps(line) + "\n" for line in QUESTIONS), encoding="utf-8")
    for name, task in (("loglikelihood", LOGLIKELIHOOD), ("generate", GENERATE)):
        (directory / f"{name}.yaml").write_text(task + COMMON.format(questions=questions), encoding="utf-8")
    return directory


TASKS = ("local_loglikelihood", "local_generate")


def run(
    server: Server, task_dir: Path, output: Path, *flags: str, tasks: Sequence[str] = TASKS, **model_args: Any
) -> dict[str, list[dict[str, Any]]]:
    """The samples of each task, in order."""
    arguments = {
        "model": server.model,
        "base_url": f"{server.v1}/completions",
        "max_length": 512,
        "max_retries": 1,
        **model_args,
    }
    command = [
        sys.executable,
        "-m",
        "lm_eval",
        *("--model", "local-completions"),
        *("--model_args", ",".join(f"{name}={value}" for name, value in arguments.items())),
        *("--tasks", ",".join(tasks)),
        *("--include_path", str(task_dir)),
        *("--output_path", str(output)),
        *("--batch_size", "3"),
        "--log_samples",
        *flags,
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(output)}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=170)
    assert result.returncode == 0, result.stdout + result.stderr
    samples = {}
    for task in tasks:
        (path,) = output.rglob(f"samples_{task}_*.jsonl")
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        samples[task] = sorted(lines, key=lambda line: line["doc_id"])
    return samples


@pytest.mark.parametrize(
    "model_args",
    [{}, {"num_concurrent": 2, "tokenizer_backend": "huggingface"}],
    ids=["one after the other, with the server's tokenizer", "at once, with a tokenizer of its own"],
)
def test_scores_are_the_engines(
    server: Server, reference: Reference, task_dir: Path, tmp_path: Path, model_args: dict[str, Any]
) -> None:
    if "tokenizer_backend" in model_args:
        model_args = {**model_args, "tokenizer": server.directory}
    samples = run(server, task_dir, tmp_path, **model_args)
    for line, sample in zip(QUESTIONS, samples["local_loglikelihood"], strict=True):
        prompt = reference.encode(line["question"])
        completion = reference.encode(line["question"] + line["answer"])[len(prompt) :]
        ((loglikelihood, is_greedy),) = sample["filtered_resps"]
        assert float(loglikelihood) == pytest.approx(sum(reference.score(prompt, completion)), abs=1e-3)
        assert str(is_greedy) == str(reference.greedy(prompt, len(completion))[0] == completion)
    for line, sample in zip(QUESTIONS, samples["local_generate"], strict=True):
        tokens, _ = reference.greedy(reference.encode(line["question"]), 12)
        assert sample["filtered_resps"] == [reference.policy.chat.text(tokens).partition("e")[0]]


def test_the_chat_template_is_the_servers(server: Server, reference: Reference, task_dir: Path, tmp_path: Path) -> None:
    samples = run(server, task_dir, tmp_path, "--apply_chat_template", tasks=["local_generate"])
    for line, sample in zip(QUESTIONS, samples["local_generate"], strict=True):
        prompt = reference.policy.chat.opening([{"role": "user", "content": line["question"]}])
        tokens, _ = reference.greedy(prompt, 12)
        assert sample["filtered_resps"] == [reference.policy.chat.text(tokens).partition("e")[0]]
