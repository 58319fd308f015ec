"""Makes a run of several turns, with thoughts, tool calls, failures, alarms and hostile texts, to test the page."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from slimrl.io.run_dir import RunDir
from slimrl.monitor.rollouts import RolloutRecord, write_rollouts
from slimrl.types import Message, Rollout, StopReason

SYSTEM = "Answer the question. Search with <tool>search(words)</tool>, then write <answer>...</answer>."
CITIES = ("Brackwater", "Hollin Ferry", "Saint Orve", "Tarn Keld")
# Each would do something in a page that does not show it as text.
INJECTIONS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "<svg onload=alert(3)><circle r=9></svg>",
    "<iframe srcdoc='<script>alert(4)</script>'></iframe>",
    "<a href='javascript:alert(5)'>press me</a>",
    "<style>body { display: none }</style>",
    "<b onmouseover=alert(6)>bold</b>",
    "</div></main><h1>outside</h1>",
    "<input autofocus onfocus=alert(7)>",
    "<object data='data:text/html,<script>alert(8)</script>'></object>",
    "&lt;script&gt;alert(9)&lt;/script&gt; &#60;b&#62;",
    "<!-- <p> --> <![CDATA[<p>]]> <?xml?>",
    "<meta http-equiv='refresh' content='0;url=http://192.0.2.1/'>",
    "<link rel=stylesheet href=//192.0.2.1/x.css>",
    "{{constructor.constructor('alert(10)')()}} ${alert(11)} <%= 1 %>",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J",
    "safe\u202etxt.exe\u202c \u2066abc\u2069",
    "zero\u200bwidth\u200d\u2060\ufeffjoined\u00adhere",
    "nul\x00 bell\x07 back\x08\x08 return\rover",
    "\U000e0041\U000e0042tags z\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307algo \u2028line",
)


@dataclass
class Writer:
    """Turns conversations into rollouts with a tokenizer of their own words."""

    tokenizer: Tokenizer
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def record(
        self, task: str, messages: Sequence[Message], reward: float, advantage: float, **more: Any
    ) -> RolloutRecord:
        """A rollout with all its tokens; those of the replies are trained on."""
        ids: list[int] = []
        mask: list[bool] = []
        for message in messages:
            sampled = message["role"] == "assistant"
            opening = self.tokenizer.encode(f"<|im_start|>{message['role']}\n").ids
            content = self.tokenizer.encode(f"{message['content']}<|im_end|>").ids
            ids += [*opening, *content, *self.tokenizer.encode("\n").ids]
            mask += [False] * len(opening) + [sampled] * len(content) + [False]
        replies = sum(message["role"] == "assistant" for message in messages)
        failed = bool(more.get("failure"))
        rollout = Rollout(
            task_id=task,
            token_ids_T=tuple(ids),
            loss_mask_T=tuple(mask),
            logprobs_T=tuple(-float(self.rng.exponential(0.4)) if on else 0.0 for on in mask),
            versions_T=tuple(3 if on else -1 for on in mask),
            reward=math.nan if failed else reward,
            turn_rewards=() if failed else (0.0,) * (replies - 1) + (reward,),
            messages=tuple(messages),
            metrics={"exact": float(reward == 1.0), "searches": float(replies - 1)},
            **more,
        )
        text = self.tokenizer.decode(ids, skip_special_tokens=False)
        return RolloutRecord(rollout, (advantage,) * replies, text, has_signal=advantage != 0.0)


def make_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """A byte-level tokenizer that knows the words of the texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def conversation(city: str, number: int, right: bool) -> list[Message]:
    """A question, a thought, a search, what it found, and an answer."""
    river = "Lenn" if right else "Ossel"
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"Which river runs through {city}?"},
        {
            "role": "assistant",
            "content": f"<think>I do not know {city}. I will look for its page first.</think>\n"
            f"<tool>search('{city} river {number}')</tool>",
        },
        {"role": "user", "content": f"1. {city}: a town on the {river}, known for its bridges and its market."},
        {"role": "assistant", "content": f"The page names the river.\n<answer>the {river}</answer>"},
    ]


def task_data(city: str) -> dict[str, Any]:
    """The question about a city, and its right answer."""
    return {"question": f"Which river runs through {city}?", "answer": "the Lenn", "hops": 1}


def _group(writer: Writer, city: str, step: int, rights: Sequence[bool]) -> Iterator[RolloutRecord]:
    mean = sum(rights) / len(rights)
    for number, right in enumerate(rights):
        task, messages = f"train/{city.lower().replace(' ', '-')}", conversation(city, number + step, right)
        yield writer.record(task, messages, float(right), float(right) - mean, task_data=task_data(city))


def step_records(writer: Writer, step: int) -> list[RolloutRecord]:
    """A step: a group with a signal, one without, and one with a rollout that ran out of time."""
    found = [*_group(writer, CITIES[step % 2], step, (True, False, True, step > 2))]
    found += _group(writer, CITIES[2], step, (False, False, False, False))
    found += _group(writer, CITIES[3], step, (True, True, False))
    late = conversation(CITIES[3], 9, False)[:3]
    why = {"failure": "timeout", "failure_detail": "search() took more than 5 s", "stop_reason": StopReason.FAILED}
    return [*found, writer.record("train/tarn-keld", late, 0.0, 0.0, **why)]


def injection_records(writer: Writer) -> list[RolloutRecord]:
    """A group whose replies are hostile."""
    asked: Message = {"role": "user", "content": "Say something."}
    replies = [[asked, Message(role="assistant", content=text)] for text in INJECTIONS]
    task = "train/<img src=x onerror=alert(12)>\u202e"
    data = {INJECTIONS[0]: INJECTIONS[1], "hidden": INJECTIONS[16], "list": [*INJECTIONS[2:6]]}
    return [
        writer.record(task, messages, 0.1 * number, 0.05 * number, task_data=data)
        for number, messages in enumerate(replies)
    ]


def write_step(run: Path, writer: Writer, step: int, records: Sequence[RolloutRecord]) -> None:
    """Write a step's rollouts, what the trainer records of their tokens, and the step's metrics."""
    path = RunDir(run).rollouts_of(step)
    write_rollouts(path, records)
    trained = [(row, record) for row, record in enumerate(records) if not record.rollout.failure]
    lengths = [record.rollout.num_sampled for _, record in trained]
    advantages = [record.advantages[0] for _, record in trained]
    total = sum(lengths)
    np.savez(
        path.with_name(f"{path.stem}.tokens.npz"),
        rows=np.array([row for row, _ in trained], np.int32),
        lengths=np.array(lengths, np.int32),
        log_ratio=writer.rng.normal(0, 0.02, total).astype(np.float16),
        entropy=writer.rng.exponential(0.6, total).astype(np.float16),
        advantage=np.repeat(advantages, lengths).astype(np.float16),
    )
    write_metrics(run, step)


def write_metrics(run: Path, step: int) -> None:
    """Append a line of metrics."""
    line = {
        "step": step,
        "reward/mean": 0.3 + 0.1 * step,
        "reward/zero_signal_groups": 0.33,
        "loss/entropy": 1.2 / (step + 1),
        "guard/mismatch_kl": 10.0 ** -(step + 3),
        "optim/grad_norm": 0.5,
        "env/searches": 1.0 + 0.1 * step,
    }
    with (run / "metrics.jsonl").open("a") as file:
        file.write(f"{json.dumps(line)}\n")


def play(run: Path, seed: int = 0, steps: int = 5) -> Writer:
    """Make a run with an evaluation before and after, alarms, and a group of hostile texts in its last step."""
    texts = [m["content"] for city in CITIES for right in (True, False) for m in conversation(city, 1, right)]
    writer = Writer(make_tokenizer([*texts, *INJECTIONS, "user", "system", "assistant"]), np.random.default_rng(seed))
    (run / "tokenizer").mkdir(parents=True)
    writer.tokenizer.save(str(run / "tokenizer" / "tokenizer.json"))
    (run / "config.toml").write_text(
        f'# slimrl rl @ config.toml\nmax_steps = 8\noutput_dir = "{run.name}"\nseed = {seed}\n\n'
        '[model]\nname = "tiny"\n\n[[orchestrator.env]]\nid = "wiki-search"\n\n[trainer.loss]\ntype = "grpo"\n'
    )
    for step in range(steps):
        more = injection_records(writer) if step == steps - 1 else []
        write_step(run, writer, step, [*step_records(writer, step), *more])
    for name, learned in (("start_greedy", ()), ("final_greedy", CITIES[1:])):
        evaluated = [
            writer.record(
                f"wiki-search/test/{city}",
                conversation(city, 1, city in learned),
                float(city in learned),
                0.0,
                task_data=task_data(city),
            )
            for city in CITIES
        ]
        write_rollouts(run / "held_out" / f"{name}.jsonl", evaluated)
    alarm = {
        "step": 3,
        "monitor": "entropy_collapse",
        "value": 0.3,
        "healthy": "above 0.5 of its start",
        "cause": "the policy repeats itself",
        "knob": "trainer.optim.lr",
        "message": "loss/entropy fell to 0.3",
    }
    (run / "monitors.jsonl").write_text("".join(f"{json.dumps({**alarm, 'step': step})}\n" for step in (3, 4)))
    return writer
