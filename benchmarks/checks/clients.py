"""Makes the calls that other clients make, each client as it comes from PyPI in an environment of its own.

    python -m benchmarks.checks.clients                           # all of them; needs `uv` and an index of packages
    python -m benchmarks.checks.clients --only litellm llm        # these anew, the others as they were

The server is `slimrl inference` with a tiny model that has learnt one question, one tool call and one answer by heart.
Every call is answered, refused (the server says why, with a status from 400 to 499) or failed, which is a finding: then
the exit status is 1. Writes `benchmarks/results/clients.json`.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.measure import RESULTS, machine_facts, markdown_table, write_result
from packages.serve.tests.clients.parrot import save_parrot_model
from packages.serve.tests.conftest import serving

CALLS = Path(__file__).parent / "client_calls"
CALLS_S = 240.0
INSTALL_S = 600.0
TASK = """\
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {questions}}}}}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
{generation}
metric_list: [{{metric: {metric}}}]
"""
GENERATE = ("generate_until", "generation_kwargs: {until: [], max_gen_toks: 20, temperature: 0.0}", "exact_match")
LIKELIHOOD = ("loglikelihood", "", "acc")


@dataclass(frozen=True, slots=True)
class Client:
    """A client: the package of its version, and what is installed with it."""

    package: str
    requirements: Sequence[str] = ()

    @property
    def program(self) -> Path:
        """The program with its calls."""
        return CALLS / f"with_{self.package.replace('-', '_')}.py"


CLIENTS = (
    Client("openai"),
    Client("litellm"),
    Client("langchain-openai"),
    Client("pydantic-ai", ["pydantic-ai-slim[openai]"]),
    Client("openai-agents"),
    Client("inspect-ai", ["inspect-ai", "openai"]),
    Client("llm"),
    Client("lm-eval", ["lm-eval[api]"]),
)


def install(client: Client, home: Path) -> tuple[Path, str]:
    """The interpreter of the client's environment, which is made if it is missing, and the client's version."""
    directory = home / client.package
    python = directory / "bin" / "python"
    if not python.exists():
        subprocess.run(["uv", "venv", "-q", "--python", "3.11", str(directory)], check=True)
        command = ["uv", "pip", "install", "-q", "--python", str(python), *(client.requirements or [client.package])]
        subprocess.run(command, check=True, timeout=INSTALL_S)
    package = "pydantic-ai-slim" if client.package == "pydantic-ai" else client.package
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return python, subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def make_calls(client: Client, python: Path, address: str, directory: Path) -> list[dict[str, str]]:
    """What came of each call. A program that ends by itself before its last one is a failure."""
    if client.package == "lm-eval":
        return lm_eval_calls(python, address, directory)
    # Nobody is asked but the server on this machine; each client has a variable of its own for it.
    environment = {
        **os.environ,
        "OPENAI_API_KEY": "none",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    environment.pop("PYTHONPATH", None)
    command = [str(python), str(client.program), address, "tiny"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=CALLS_S, cwd=directory, env=environment
        )
        lines, trouble = result.stdout, result.stderr[-300:] if result.returncode else ""
    except subprocess.TimeoutExpired as error:
        lines = error.stdout.decode() if isinstance(error.stdout, bytes) else ""
        trouble = f"no end within {CALLS_S:.0f} s"
    outcomes: list[dict[str, str]] = [json.loads(line) for line in lines.splitlines() if line.startswith('{"call"')]
    if trouble:
        outcomes.append({"call": "the rest", "outcome": "failed", "detail": " ".join(trouble.split())})
    return outcomes


def lm_eval_calls(python: Path, address: str, directory: Path) -> list[dict[str, str]]:
    """lm-eval is a command: a task of one question by each of its ways to ask."""
    questions = directory / "questions.jsonl"
    questions.write_text(json.dumps({"question": "What is 20 + 22?", "answer": "It is 42."}) + "\n", encoding="utf-8")
    outcomes = []
    for name, model, route, flags, (kind, generation, metric) in (
        ("completions, loglikelihood", "local-completions", "completions", [], LIKELIHOOD),
        ("completions, generate", "local-completions", "completions", [], GENERATE),
        ("completions, chat template", "local-completions", "completions", ["--apply_chat_template"], GENERATE),
        ("chat", "local-chat-completions", "chat/completions", ["--apply_chat_template"], GENERATE),
    ):
        task = TASK.format(questions=questions, kind=kind, generation=generation, metric=metric)
        (directory / "sums.yaml").write_text(task, encoding="utf-8")
        settings = f"model=tiny,base_url={address}/v1/{route},max_length=1024,max_retries=1"
        command = [str(python), "-m", "lm_eval", "--model", model, "--model_args", settings, *flags]
        command += ["--tasks", "sums", "--include_path", str(directory)]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(directory)}
        environment.pop("PYTHONPATH", None)
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=CALLS_S, env=environment)
            told, errors = result.stdout, result.stderr
        except subprocess.TimeoutExpired:
            told, errors = "", f"no end within {CALLS_S:.0f} s"
        row = next((line for line in told.splitlines() if f"|{metric}" in line.replace(" ", "")), "")
        detail = row or (told + errors)[-300:]
        outcome = "answered" if row else "failed"
        outcomes.append({"call": name, "outcome": outcome, "detail": " ".join(detail.split())})
    return outcomes


@contextlib.contextmanager
def own_server(model: Path | None, directory: Path) -> Iterator[str]:
    """A context with the address of a server."""
    if model is None:
        model = directory / "parrot"
        save_parrot_model(model)
    with serving(model, max_slots=8, context_len=1024) as server:
        yield server.address


def table(clients: dict[str, Any]) -> str:
    """The results for `docs/clients.md`."""
    rows = []
    for name, client in clients.items():
        by_outcome = {
            kind: [call["call"] for call in client["calls"] if call["outcome"] == kind]
            for kind in ("answered", "refused", "failed")
        }
        rows.append([f"{name} {client['version']}", *("; ".join(calls) or "-" for calls in by_outcome.values())])
    return markdown_table(["client", "answered", "refused", "failed"], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [client.package for client in CLIENTS]
    parser.add_argument("--only", nargs="+", choices=known, default=known)
    parser.add_argument("--environments", type=Path, help="a directory for the environments, which are kept there")
    parser.add_argument("--model", type=Path, help="a directory of the model that has learnt its replies already")
    parser.add_argument("--address", help="a server that serves this model already, as `tiny`")
    parser.add_argument("--output", type=Path, default=RESULTS / "clients.json")
    arguments = parser.parse_args()
    facts, results = machine_facts(), dict[str, Any]()
    if arguments.only != known and arguments.output.exists():  # the others stay as they were
        results = json.loads(arguments.output.read_text(encoding="utf-8"))["clients"]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with contextlib.ExitStack() as stack:
            address = arguments.address or stack.enter_context(own_server(arguments.model, directory))
            for client in CLIENTS:
                if client.package not in arguments.only:
                    continue
                python, version = install(client, arguments.environments or directory / "environments")
                calls = make_calls(client, python, address, directory)
                results[client.package] = {"version": version, "calls": calls}
                for call in calls:
                    print(
                        f"{client.package} {version}: {call['call']}: {call['outcome']}: {call['detail'][:150]}",
                        flush=True,
                    )
    print(table(results))
    private = {str(arguments.environments): "environments", str(arguments.model): "parrot"}
    private |= {str(arguments.address): "http://127.0.0.1:8000"}
    write_result(arguments.output, facts, {"clients": results}, private)
    return int(any(call["outcome"] == "failed" for client in results.values() for call in client["calls"]))


if __name__ == "__main__":
    sys.exit(main())
