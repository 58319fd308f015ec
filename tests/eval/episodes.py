"""Finished episodes made by hand, and a taskset with an expert, a random player and an opinion on failures."""

from slimrl.types import Message, Rollout, Script, StopReason, Task, Taskset, Turn


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def rollout(task_id: str, reward: float = 1.0, question: str = "q", failure: str = "", **metrics: float) -> Rollout:
    """Two tokens, of which one was sampled."""
    return Rollout(
        task_id=task_id,
        token_ids_T=(5, 6),
        loss_mask_T=(False, True),
        logprobs_T=(0.0, -0.5),
        versions_T=(-1, 0),
        reward=float("nan") if failure else reward,
        turn_rewards=(reward,),
        messages=(user(f"{question} {task_id}"), {"role": "assistant", "content": "a"}),
        metrics={"turns": 1.0, "unfinished": 0.0, "context_full": 0.0, **metrics},
        failure=failure,
        failure_detail="of itself" if failure else "",
        stop_reason=stop_reason(failure, metrics),
    )


def stop_reason(failure: str, metrics: dict[str, float]) -> StopReason:
    if failure:
        return StopReason.FAILED
    if metrics.get("context_full"):
        return StopReason.CONTEXT_FULL
    return StopReason.MAX_TURNS if metrics.get("unfinished") else StopReason.DONE


class Sums(Taskset):
    """Asks for a sum in two turns: first any word, then the sum."""

    def __init__(self, num_tasks: int = 6) -> None:
        self._num_tasks = num_tasks

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}/{n}", {"number": n, "answer": str(n + 1)}) for n in range(self._num_tasks)]

    def environment(self, task: Task) -> "SumEpisode":
        return SumEpisode(task)

    @property
    def scripts(self) -> dict[str, Script]:
        return {
            "expert": lambda task, seed: self._said(task, "hm", task.data["answer"]),
            "random": lambda task, seed: self._said(task, "hm", str(seed % 3)),
        }

    def failure_kind(self, rollout: Rollout) -> str:
        return "" if rollout.metrics["unfinished"] else f"said {rollout.messages[-1]['content']}"

    def _said(self, task: Task, *replies: str) -> list[Message]:
        messages: list[Message] = [user(f"{task.data['number']} + 1?")]
        for reply in replies:
            messages += [{"role": "assistant", "content": reply}, user("go on")]
        return messages[:-1]


class SumEpisode:
    def __init__(self, task: Task) -> None:
        self._task, self._turns = task, 0

    async def start(self) -> list[Message]:
        return [user(f"{self._task.data['number']} + 1?")]

    async def step(self, reply: str) -> Turn:
        self._turns += 1
        if self._turns == 1:
            return Turn(done=False, messages=[user("go on")])
        right = reply == self._task.data["answer"]
        return Turn(done=True, reward=float(right), metrics={"correct": right})
