"""How fast tokens are sampled: our engine against llama.cpp, vLLM and transformers, on the CPU, in one run.

Random prompts of 128 tokens; after the first token of every sequence, 64 more are timed. Ours always samples at
temperature 1 and returns log-probabilities. Each side runs in a process of its own, the sides in turn.

    python -m benchmarks.speed.decode --vllm-python ENVIRONMENT/bin/python --llama-bin DIRECTORY

benchmarks/README.md says how to get the peers. Without these options only transformers' side is measured besides ours.
"""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.harness.generate_sides import (
    SPEED_HEAD,
    add_options,
    decode_needed,
    decode_speed,
    prefill_needed,
    prefill_speed,
    private,
    sides,
    speed_row,
    summary,
)
from benchmarks.harness.generate_work import Case
from benchmarks.harness.measure import (
    alternate,
    common_arguments,
    machine_facts,
    markdown_table,
    roofline,
    write_result,
)


def main() -> None:
    parser = common_arguments(__doc__ or "", "decode.json", repetitions=3)
    add_options(parser)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32, 64], help="sequences decoded together")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=64, help="tokens of each sequence after its first")
    arguments = parser.parse_args()
    cases = [Case(batch, arguments.prompt_tokens, arguments.new_tokens) for batch in arguments.batch]
    facts = machine_facts()
    with tempfile.TemporaryDirectory() as directory:
        runs = alternate(
            sides(arguments, cases, Path(directory)), arguments.repetitions, arguments.threads, arguments.device
        )
    content = {
        "roofline": roofline(runs),
        "summary": {
            "decode": summary(runs, cases, arguments.model, decode_speed, decode_needed),
            "prefill": summary(runs, cases, arguments.model, prefill_speed, prefill_needed),
        },
        "runs": runs,
    }
    print(f"\n{table(content)}")
    write_result(arguments.output, facts, content, private(arguments))


def table(content: dict[str, Any]) -> str:
    """One line for each dtype and batch, decoding first, from the content of the JSON file."""
    rows = [
        [kind, dtype, case.partition("x")[0], *speed_row(numbers)]
        for kind, dtypes in content["summary"].items()
        for dtype, by_case in dtypes.items()
        for case, numbers in by_case.items()
    ]
    return markdown_table(("", "dtype", "batch", *SPEED_HEAD), rows)


if __name__ == "__main__":
    main()
