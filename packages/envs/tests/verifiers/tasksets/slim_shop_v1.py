"""A shop whose prices a tool tells, in verifiers v1: the tool server is a program of its own that speaks MCP.

All episodes share one server, or with `task.own_server` each has one, which takes seconds to start.
"""

import verifiers.v1 as vf

__all__ = ["ShopTaskset"]

PRICES = {"hat": 12, "jar": 71, "kite": 30}


class State(vf.State):
    asked: int = 0


class Shop(vf.Toolset[vf.ToolsetConfig, State]):
    TOOL_PREFIX = "shop"

    @vf.tool
    async def price(self, thing: str) -> str:
        """The price of a thing."""
        self.state.asked += 1
        if thing not in PRICES:
            raise ValueError(f"{thing} is not for sale")
        return str(PRICES[thing])


class Data(vf.TaskData):
    thing: str


class TaskConfig(vf.TaskConfig):
    own_server: bool = False


class Config(vf.TasksetConfig):
    task: TaskConfig = TaskConfig()


class ShopTask(vf.Task[Data, State, TaskConfig]):
    @classmethod
    def toolsets(cls, config):
        return [Shop(vf.ToolsetConfig())] if config.own_server else []

    @vf.reward
    async def right(self, task: Data, trace: vf.Trace) -> float:
        return float(str(PRICES[task.thing]) in trace.last_reply)

    @vf.metric
    async def asked(self, trace: vf.Trace) -> float:
        return float(trace.state.asked)


class ShopTaskset(vf.Taskset[ShopTask, Config]):
    @classmethod
    def toolsets(cls, config):
        return [] if config.task.own_server else [Shop(vf.ToolsetConfig())]

    def load(self):
        for number in range(12):
            for thing in PRICES:
                prompt = f"Customer {number} asks: what does the {thing} cost?"
                yield ShopTask(Data(prompt=prompt, thing=thing), self.config.task)


if __name__ == "__main__":
    Shop.run()
