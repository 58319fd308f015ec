"""How fast prompts are read: our engine against llama.cpp, vLLM and transformers, on the CPU, in one run.

Random prompts that have nothing in common, of 128 to 2,048 tokens, alone and in batches; timed until every sequence has
its first token. Each side runs in a process of its own, the sides in turn.

    python -m benchmarks.speed.prefill --vllm-python ENVIRONMENT/bin/python --llama-bin DIRECTORY

benchmarks/README.md says how to get the peers. Without these options only transformers' side is measured besides ours.
"""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.generate_sides import (
    SPEED_HEAD,
    add_options,
    prefill_needed,
    prefill_speed,
    private,
    sides,
    speed_row,
    summary,
)
from benchmarks.harness.generate_work import Case, case_of
from benchmarks.harness.measure import (
    alternate,
    common_arguments,
    machine_facts,
    markdown_table,
    roofline,
    write_result,
)


def main() -> None:
    parser = common_arguments(__doc__ or "", "prefill.json", repetitions=3)
    add_options(parser)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], help="prompts read together")
    parser.add_argument("--prompt-tokens", type=int, nargs="+", default=[128, 512, 2048])
    arguments = parser.parse_args()
    cases = [Case(batch, prompt, 0) for prompt in arguments.prompt_tokens for batch in arguments.batch]
    facts = machine_facts()
    with tempfile.TemporaryDirectory() as directory:
        runs = alternate(
            sides(arguments, cases, Path(directory)), arguments.repetitions, arguments.threads, arguments.device
        )
    content = {
        "roofline": roofline(runs),
        "summary": summary(runs, cases, arguments.model, prefill_speed, prefill_needed),
        "runs": runs,
    }
    print(f"\n{table(content)}")
    write_result(arguments.output, facts, content, private(arguments))


def table(content: dict[str, Any]) -> str:
    """One line for each dtype and case, from the content of the JSON file."""
    rows = []
    for dtype, by_case in content["summary"].items():
        for name, numbers in by_case.items():
            case = case_of(name)
            rows.append([dtype, f"{case.prompt:,}", str(case.batch), *speed_row(numbers)])
    return markdown_table(("dtype", "prompt tokens", "batch", *SPEED_HEAD), rows)


if __name__ == "__main__":
    main()
