"""Whether an answer is right, asked of a language model behind any OpenAI-compatible server.

Its verdict is yes or no and nothing else. Whatever keeps it from one (a dead or slow server, a reply that is neither)
is a failure of the rollout, with a reason, and never a reward of 0. Verdicts are kept on disk, so that nothing is asked
twice. The judge that needs no model is `environments/match.py`.
"""

import asyncio
import hashlib
import re
import sqlite3
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from slimrl.environments.match import matches
from slimrl.errors import RolloutError, UserError, nearest
from slimrl.models.store import cache_root

VERDICT = re.compile(r"[\W_]*(yes|no)[\W_]*", re.IGNORECASE)
THOUGHTS = re.compile(r"^.*</think>", re.DOTALL)  # of a model that thinks before it speaks
PROMPT = """\
Question: {question}

Correct answer, or several of which any is correct, one a line:
{references}

Response to judge:
{response}

Is the response correct, given the question and the correct answer, and coherent? Reply with one word, yes or no."""


@dataclass(frozen=True, slots=True)
class JudgeServer:
    """Where the judge is. `timeout_s` is for one reply; a reply that is no verdict, and a server that is busy, is tried
    again, `max_tries` times in all. At most `num_concurrent` questions are open at once."""

    base_url: str
    model: str
    api_key: str = "none"
    timeout_s: float = 60.0
    max_tries: int = 3
    num_concurrent: int = 16
    max_tokens: int = 512  # for models that think first


def verdict_of(reply: str) -> bool | None:
    """True for yes, False for no, None for anything else. Thoughts before the last `</think>` do not count.

    >>> verdict_of("**Yes.**"), verdict_of("no"), verdict_of("yes/no"), verdict_of("eyes")
    (True, False, None, None)
    """
    found = VERDICT.fullmatch(THOUGHTS.sub("", reply).strip())
    return found[1].lower() == "yes" if found else None


class Judge(Protocol):
    async def judge(self, question: str, response: str, references: Sequence[str]) -> bool:
        """Whether the response is right. Raises RolloutError where there is no telling."""


class MatchJudge:
    """By `environments/match.py`."""

    async def judge(self, question: str, response: str, references: Sequence[str]) -> bool:
        return matches(response, references)


def judge_of(settings: Mapping[str, Any]) -> Judge:
    """The judge that a config's `judge` describes: of nothing the one that compares words, otherwise a server, by the
    fields of `JudgeServer`."""
    if not settings:
        return MatchJudge()
    known = [field.name for field in fields(JudgeServer)]
    for name in settings:
        if name not in known:
            raise UserError(f"the judge has no setting `{name}`.{nearest(name, known)}")
    missing = [name for name in ("base_url", "model") if name not in settings]
    if missing:
        raise UserError(f"a judge needs `{'` and `'.join(missing)}`, or leave `judge` away to compare words.")
    return LLMJudge(JudgeServer(**settings), cache_root() / "judge" / "verdicts.sqlite")


class LLMJudge:
    """Asks the server, greedily, what is not in the cache. `asked` and `found` count verdicts from either."""

    def __init__(self, server: JudgeServer, cache: Path) -> None:
        self._server = server
        self._client = _openai().OpenAI(
            base_url=server.base_url, api_key=server.api_key, timeout=server.timeout_s, max_retries=server.max_tries - 1
        )
        # Threads, and not the client for asyncio: every step of a run has an event loop of its own.
        self._places = ThreadPoolExecutor(server.num_concurrent, thread_name_prefix="judge")
        self._cache = VerdictCache(cache)
        self.asked = self.found = 0

    async def judge(self, question: str, response: str, references: Sequence[str]) -> bool:
        """Raises RolloutError where there is no verdict. An empty response is wrong without asking."""
        response = THOUGHTS.sub("", response).strip()
        if not response:
            return False
        prompt = PROMPT.format(question=question, references="\n".join(references), response=response)
        key = hashlib.sha256(f"{self._server.model}\n{prompt}".encode()).hexdigest()
        verdict = self._cache.get(key)
        if verdict is not None:
            self.found += 1
            return verdict
        verdict = await asyncio.get_running_loop().run_in_executor(self._places, self._ask, prompt)
        self.asked += 1
        self._cache.put(key, verdict)
        return verdict

    def _ask(self, prompt: str) -> bool:
        replies = []
        for seed in range(self._server.max_tries):
            reply = self._reply(prompt, seed)
            verdict = verdict_of(reply)
            if verdict is not None:
                return verdict
            replies.append(reply)
        raise RolloutError(
            "judge_verdict", f"{len(replies)} replies were neither yes nor no, the last {replies[-1]!r:.200}"
        )

    def _reply(self, prompt: str, seed: int) -> str:
        """The first is greedy; the same again would not help, so later ones are drawn."""
        openai, server = _openai(), self._server
        try:
            completion = self._client.chat.completions.create(
                model=server.model,
                messages=[{"role": "user", "content": prompt}],
                temperature=0.0 if seed == 0 else 0.7,
                seed=seed,
                max_tokens=server.max_tokens,
            )
            reply = completion.choices[0].message.content
        except openai.APITimeoutError as error:
            raise RolloutError("judge_timeout", f"no reply within {server.timeout_s:g} s (`timeout_s`)") from error
        except openai.APIConnectionError as error:
            raise RolloutError("judge_unreachable", f"{server.base_url}: {error.__cause__ or error}") from error
        except openai.APIStatusError as error:
            raise RolloutError(
                "judge_error", f"{server.base_url} answered {error.status_code}: {error!s:.300}"
            ) from error
        except (openai.OpenAIError, AttributeError, IndexError, TypeError, ValueError) as error:
            raise RolloutError("judge_error", f"{server.base_url} gave no chat completion: {error!s:.300}") from error
        if not isinstance(reply, str):
            raise RolloutError("judge_error", f"{server.base_url} gave a completion without text: {reply!r:.200}")
        return reply


class VerdictCache:
    """Verdicts by key, in one SQLite file that several processes may share."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS verdict (key TEXT PRIMARY KEY, yes INTEGER NOT NULL) WITHOUT ROWID"
            )
        except (OSError, sqlite3.DatabaseError) as error:
            raise UserError(f"the judge's cache {path} cannot be used: {error}. Delete it, or name another.") from error

    def get(self, key: str) -> bool | None:
        row = self._database.execute("SELECT yes FROM verdict WHERE key = ?", (key,)).fetchone()
        return None if row is None else bool(row[0])

    def put(self, key: str, verdict: bool) -> None:
        self._database.execute("INSERT OR REPLACE INTO verdict VALUES (?, ?)", (key, int(verdict)))

    def __len__(self) -> int:
        return int(self._database.execute("SELECT COUNT(*) FROM verdict").fetchone()[0])


def _openai() -> Any:
    try:
        import openai  # an extra, and slow to import: only here
    except ImportError as error:
        raise UserError(f"an LLM judge needs the extra [judge]: `uv sync --extra judge` ({error}).") from error
    return openai
