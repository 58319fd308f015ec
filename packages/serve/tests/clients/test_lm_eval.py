"""lm-eval, unmodified, as its command line runs it: `--model local-completions` on a task of two local files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from packages.serve.tests.conftest import Reference
from slimrl_serve.command import InferenceServer

pytestmark = pytest.mark.nightly

COMMON = {"dataset_path": "json", "test_split": "test", "doc_to_text": "{{question}}", "doc_to_target": "{{answer}}"}
GENERATION = {"until": ["e"], "max_gen_toks": 12, "temperature": 0.0}
TASKS: dict[str, dict[str, Any]] = {
    "local_loglikelihood": {"output_type": "loglikelihood", "metric_list": [{"metric": "acc"}]},
    "local_generate": {
        "output_type": "generate_until",
        "generation_kwargs": GENERATION,
        "metric_list": [{"metric": "exact_match"}],
    },
}
QUESTIONS = {
    "The capital of France is": " Paris.",
    "The quick brown fox": " jumps over the lazy dog.",
    "user": " system assistant",
    "reverse the text, then": " give the answer in tags.",
}


def test_scores_are_the_engines(server: InferenceServer, reference: Reference, tiny_dir: Path, tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    lines = [json.dumps({"question": question, "answer": answer}) for question, answer in QUESTIONS.items()]
    questions.write_text("\n".join(lines), encoding="utf-8")
    for name, task in TASKS.items():
        settings = {"task": name, "dataset_kwargs": {"data_files": {"test": str(questions)}}, **COMMON, **task}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(settings), encoding="utf-8")
    arguments = {
        "model": "tiny", "base_url": f"{server.address}/v1/completions", "max_length": 512, "max_retries": 1,
        "num_concurrent": 2, "tokenizer_backend": "huggingface", "tokenizer": tiny_dir,
    }  # fmt: skip
    command = [
        *(sys.executable, "-m", "lm_eval", "--model", "local-completions", "--tasks", ",".join(TASKS)),
        *("--model_args", ",".join(f"{name}={value}" for name, value in arguments.items())),
        *("--include_path", str(tmp_path), "--output_path", str(tmp_path), "--batch_size", "3", "--log_samples"),
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=170)
    assert result.returncode == 0, result.stdout + result.stderr
    samples = {}
    for task in TASKS:
        (path,) = tmp_path.rglob(f"samples_{task}_*.jsonl")
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        samples[task] = [line["filtered_resps"] for line in sorted(lines, key=lambda line: line["doc_id"])]
    for (question, answer), found in zip(QUESTIONS.items(), samples["local_loglikelihood"], strict=True):
        prompt = reference.encode(question)
        completion = reference.encode(question + answer)[len(prompt) :]
        ((loglikelihood, is_greedy),) = found
        assert float(loglikelihood) == pytest.approx(sum(reference.score(prompt, completion)), abs=1e-3)
        assert str(is_greedy) == str(reference.greedy(prompt, len(completion))[0] == completion)
    for question, found in zip(QUESTIONS, samples["local_generate"], strict=True):
        tokens, _ = reference.greedy(reference.encode(question), 12)
        assert found == [reference.policy.chat.text(tokens).partition("e")[0]]
