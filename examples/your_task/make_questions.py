"""Writes questions.jsonl, 200 sums of two numbers, and shop.jsonl, questions for the tool of server.py.

    uv run python examples/your_task/make_questions.py

Files of yours take their place.
"""

import json
import random
from pathlib import Path

HERE = Path(__file__).parent
PRICES = {"apple": 7, "bread": 12, "candle": 5, "drum": 31, "kite": 19, "lamp": 24}


def write(name, rows):
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (HERE / name).write_text(text, encoding="utf-8")


rng = random.Random(0)
pairs = rng.sample([(a, b) for a in range(1, 31) for b in range(1, 31)], 200)
write("questions.jsonl", [{"question": f"What is {a} + {b}?", "answer": a + b} for a, b in pairs])
orders = [(thing, pieces) for thing in PRICES for pieces in range(1, 26)]
rows = [
    {
        "question": f"{thing}, {n} pieces: what do they cost?",
        "answer": n * PRICES[thing],
        "calls": [{"tool": "price", "arguments": {"thing": thing, "pieces": n}}],  # for the warm-up
    }
    for thing, n in orders
]
write("shop.jsonl", rng.sample(rows, len(rows)))
