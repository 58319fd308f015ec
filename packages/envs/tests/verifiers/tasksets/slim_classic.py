"""Environments of verifiers' classic interface: one turn, several turns, tools, a group's rubric, a broken one."""

import verifiers as vf
from datasets import Dataset

TOLD = {"Rome": "Ada", "Oslo": "Bo"}


def mayor(city: str) -> str:
    """The mayor of a city."""
    return TOLD[city]


async def right(completion, answer) -> float:
    return float(answer in str(completion[-1].content))


async def shortest(completions) -> list[float]:
    sizes = [len(str(completion)) for completion in completions]
    return [float(size == min(sizes)) for size in sizes]


class Again(vf.MultiTurnEnv):
    async def env_response(self, messages, state, **kwargs):
        return [vf.UserMessage(content=f"again {len(state['trajectory'])}")]


class Forgetful(Again):
    async def get_prompt_messages(self, state):
        return [vf.UserMessage(content=f"summary {len(state['trajectory'])}")]


class Broken(Again):
    async def env_response(self, messages, state, **kwargs):
        raise vf.Error("the box is gone")


def load_environment(kind="single", has_tests=False):
    rows = [
        {"question": f"{number}: who is the mayor of {city}?", "answer": TOLD[city]}
        for number in range(10)
        for city in TOLD
    ]
    given = {"dataset": Dataset.from_list(rows), "rubric": vf.Rubric(funcs=[right])}
    if has_tests:
        given["eval_dataset"] = Dataset.from_list(rows[:3])
    if kind == "group":
        given["rubric"] = vf.Rubric(funcs=[shortest])
    if kind == "tools":
        return vf.ToolEnv(tools=[mayor], max_turns=5, **given)
    if kind in ("several", "forgetful", "broken"):
        return {"several": Again, "forgetful": Forgetful, "broken": Broken}[kind](max_turns=3, **given)
    return vf.SingleTurnEnv(system_prompt="Answer.", **given)
