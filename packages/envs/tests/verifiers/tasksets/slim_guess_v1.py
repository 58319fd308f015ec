"""A game of several turns in verifiers v1: the env is the user, and says whether a guess is too high or too low.

With `twice` the player plays two games beside each other, which one conversation cannot hold.
"""

import itertools
import re

import verifiers.v1 as vf

__all__ = ["GuessEnv", "GuessTaskset"]


class Data(vf.TaskData):
    number: int


class GuessTask(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.stop
    async def gave_up(self, trace: vf.Trace) -> bool:
        return "I give up" in trace.last_reply

    @vf.metric
    async def guesses(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


class GuessConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig(max_turns=6)
    twice: bool = False


class GuessEnv(vf.Env[GuessConfig]):
    async def run(self, task, agents):
        if self.config.twice:
            await agents.player.run(task)
            await agents.player.run(task.with_data(prompt="another question"))
        found = 0.0
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                guess = re.search(r"\d+", segment.last_reply)
                if guess and int(guess[0]) == task.data.number:
                    found = 1.0
                    break
                hint = "No number." if not guess else "Higher." if int(guess[0]) < task.data.number else "Lower."
                segment = await interaction.turn(hint)
        interaction.trace.record_reward("found", found)


class GuessTaskset(vf.Taskset[GuessTask, vf.TasksetConfig]):
    INFINITE = True

    def load(self):
        for number in itertools.count():
            prompt = f"Game {number}: guess a number from 0 to 99."
            yield GuessTask(Data(prompt=prompt, number=number * 37 % 100), self.config.task)
