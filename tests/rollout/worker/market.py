"""Sells things, and draws at random. The environment of test_taskset.py."""

import asyncio
import os
import random
import sys
import time

from slimrl.errors import RolloutError, UserError
from slimrl.types import Task, Turn


class Market:
    def __init__(self, wait_s: float = 0.0, how: str = ""):
        self.wait_s, self.how = wait_s, how
        if how == "refused":
            raise UserError("market: `how` cannot be refused.")
        if how == "raises":
            raise KeyError("market")

    def tasks(self, split):
        if self.how == "twice":
            return [Task("0", {}), Task("0", {})]
        return [Task(f"{split}/{n}", {"n": n, "pair": (n, n)}) for n in range(600)]

    def environment(self, task):
        assert isinstance(task.data["pair"], tuple)
        return Sale(self, task)


class Scored(Market):
    """Its sales cost something if a limit cuts them off."""

    def environment(self, task):
        return CostlySale(self, task)


class Sale:
    def __init__(self, market, task):
        self.market, self.task, self.turns = market, task, 0

    async def start(self):
        return [{"role": "user", "content": f"sale {self.task.data['n']}"}]

    async def step(self, reply):
        if self.market.wait_s:
            await asyncio.sleep(self.market.wait_s)
        match self.market.how:
            case "judge":
                raise RolloutError("judge_error", "no verdict")
            case "setting":
                raise UserError("set `args.judge`")
            case "prints":
                print(f"sold {reply}\x1b[2J")
            case "one in seven" if self.task.data["n"] % 7 == 3:
                os._exit(1)
        self.turns += 1
        if self.turns < 3:
            return Turn(False, [{"role": "user", "content": f"{reply}, and then?"}], reward=0.125)
        return Turn(True, reward=random.random(), metrics={"turns": self.turns})

    async def close(self):
        if self.market.how == "closes":
            print("closed", self.task.id)


class CostlySale(Sale):
    async def cut_off(self):
        return Turn(True, reward=-3.0)


class Full(Market):
    """Has all that a taskset may have."""

    @property
    def roles(self):
        return ["buyer", "seller"]

    def self_play(self, task):
        table = [asyncio.Event(), asyncio.Event()]
        return [Side(table, place) for place in range(2)]

    @property
    def scripts(self):
        return {"expert": self.solve, "odd": self.odd}

    def solve(self, task, seed):
        async def conversation():
            return [*await self.environment(task).start(), {"role": "assistant", "content": f"seed {seed}"}]

        return asyncio.run(conversation())

    def odd(self, task, seed):
        return [{"role": "user", "content": {1}}]

    def failure_kind(self, rollout):
        return f"earned {rollout.reward:g} in {rollout.metrics['turns']:g}"

    def prepare(self):
        print("prepared")

    def offload(self):
        print("offloaded")


class Exam(Market):
    """Asks for programs. The 200 tests of a task have `size` characters."""

    def __init__(self, num_tasks=2, size=2_000):
        super().__init__()
        self.num_tasks, self.size = num_tasks, size

    def tasks(self, split):
        tests = [{"input": "x" * (self.size // 200), "output": (n, 0.5)} for n in range(200)]
        return [Task(f"{split}/{n}", {"tests": tests}) for n in range(self.num_tasks)]

    def environment(self, task):
        return Answer(task)

    def failure_kind(self, rollout):
        tests = rollout.task_data["tests"]
        return f"passes {sum(test['output'] == (n, 0.5) for n, test in enumerate(tests))} of {len(tests)} tests"


class Answer:
    def __init__(self, task):
        self.task = task

    async def start(self):
        return [{"role": "user", "content": "Write a program."}]

    async def step(self, reply):
        return Turn(True, reward=float(len(self.task.data["tests"]) == 200))


class Hangs(Market):
    """Hangs in its expert, and in its preparation except for the first `num_prepared` ones."""

    def __init__(self, path="", num_prepared=1):
        super().__init__()
        self.path, self.num_prepared = path, num_prepared
        self.scripts = {"expert": lambda task, seed: time.sleep(100)}

    def prepare(self):
        if not self.num_prepared or os.path.exists(self.path):
            time.sleep(100)
        open(self.path, "w").close()


class Side:
    """Waits for the other side before its own reply counts."""

    def __init__(self, table, place):
        self.table, self.place = table, place

    async def start(self):
        return [{"role": "user", "content": f"side {self.place}"}]

    async def step(self, reply):
        self.table[self.place].set()
        await self.table[1 - self.place].wait()
        return Turn(True, reward=float(self.place))


def imported_in():
    return [name for name in sys.modules if "market" in name]
