"""A taskset of verifiers v1 with a harness of its own, which reaches the model by HTTP, as programs do."""

import httpx
import verifiers.v1 as vf

__all__ = ["HttpHarness", "HttpTaskset"]


class Config(vf.HarnessConfig):
    rewrites: bool = False


class HttpHarness(vf.Harness[Config]):
    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, *given, **options):
        ctx, _, _, endpoint, secret, _, data = given
        messages = [{"role": "user", "content": data.prompt}]
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {secret}"}, timeout=30) as client:
            for _ in range(2):
                body = {"model": ctx.model, "messages": messages}
                answer = await client.post(f"{endpoint}/chat/completions", json=body)
                if answer.status_code != 200:
                    return vf.ProgramResult(1, "", answer.text)
                messages += [answer.json()["choices"][0]["message"], {"role": "user", "content": "again"}]
                if self.config.rewrites:
                    messages[0] = {"role": "user", "content": "a summary of what was said"}
        return vf.ProgramResult(0, "", "")


class HttpTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
    @vf.reward
    async def both(self, trace: vf.Trace) -> float:
        return float([message.content for message in trace.assistant_messages] == ["one", "two"])


class HttpTaskset(vf.Taskset[HttpTask, vf.TasksetConfig]):
    def load(self):
        for number in range(10):
            yield HttpTask(vf.TaskData(prompt=f"question {number}"), self.config.task)
