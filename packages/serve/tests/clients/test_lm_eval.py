"""lm-eval, unmodified, as its command line runs it: `--model local-completions` on a task of two local files."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from packages.serve.tests.clients.serving import Reference, Server

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
    return write_tasks(tmp_path_factory.mktemp("tasks"), QUESTIONS)


def write_tasks(directory: Path, rows: Sequence[dict[str, str]]) -> Path:
    """Two tasks that ask these questions, in files in the directory."""
    questions = directory / "questions.jsonl"
    questions.write_text("".join(json.dumps(line) + "\n" for line in rows), encoding="utf-8")
    for name, task in (("loglikelihood", LOGLIKELIHOOD), ("generate", GENERATE)):
        (directory / f"{name}.yaml").write_text(task + COMMON.format(questions=questions), encoding="utf-8")
    return directory


TASKS = ("local_loglikelihood", "local_generate")


def run(
    server: Server, task_dir: Path, output: Path, *flags: str, tasks: Sequence[str] = TASKS, **model_args: Any
) -> dict[str, list[dict[str, Any]]]:
    """The samples of each task, in order."""
    lm_eval(server, task_dir, output, "--log_samples", *flags, tasks=tasks, **model_args)
    samples = {}
    for task in tasks:
        (path,) = output.rglob(f"samples_{task}_*.jsonl")
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        samples[task] = sorted(lines, key=lambda line: line["doc_id"])
    return samples


def lm_eval(server: Server, task_dir: Path, output: Path, *flags: str, tasks: Sequence[str], **model_args: Any) -> None:
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
        *flags,
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(output)}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=170)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_the_chat_template_is_the_servers(server: Server, reference: Reference, tmp_path: Path) -> None:
    # With `--log_samples` lm-eval 0.4.13 itself fails at chat prompts, so the right answers are what it should get.
    def reply(question: str) -> str:
        prompt = reference.policy.chat.opening([{"role": "user", "content": question}])
        return reference.policy.chat.text(reference.greedy(prompt, 12)[0]).partition("e")[0]

    rows = [{"question": line["question"], "answer": reply(line["question"])} for line in QUESTIONS]
    rows[-1]["answer"] += "?"  # and one of them is wrong
    (tmp_path / "tasks").mkdir()
    tasks = write_tasks(tmp_path / "tasks", rows)
    lm_eval(server, tasks, tmp_path / "out", "--apply_chat_template", tasks=["local_generate"])
    (path,) = (tmp_path / "out").rglob("results_*.json")
    results = json.loads(path.read_text(encoding="utf-8"))["results"]["local_generate"]
    assert results["exact_match,none"] == 0.75
