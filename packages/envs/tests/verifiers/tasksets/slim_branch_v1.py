"""Tasksets of verifiers v1 that one conversation cannot hold: attempts beside each other."""

import verifiers.v1 as vf

__all__ = ["BranchEnv", "BranchTaskset"]


class BranchTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def one(self) -> float:
        return 1.0


class BranchConfig(vf.EnvConfig):
    solver: vf.AgentConfig = vf.AgentConfig()


class BranchEnv(vf.Env[BranchConfig]):
    async def run(self, task, agents):
        await agents.solver.run(task)
        await agents.solver.run(task.with_data(prompt="another question"))


class BranchTaskset(vf.Taskset[BranchTask, vf.TasksetConfig]):
    def load(self):
        for number in range(10):
            yield BranchTask(vf.TaskData(prompt=f"question {number}"), self.config.task)
