"""The settings of a language model that judges. Verdicts are in `judges/judge.py`."""

from dataclasses import dataclass
from typing import ClassVar

from slimrl.io.chat_client import ChatServer


@dataclass(frozen=True, slots=True)
class JudgeServer(ChatServer):
    """The server of a judge. Its fields, inherited from `ChatServer`, are the settings of an environment's `judge`.

    `timeout_s` is the limit for a verdict with all its tries, and `max_tokens` leaves room for models that think first.
    """

    who: ClassVar[str] = "judge"
    gives: ClassVar[str] = "verdict"
    advice: ClassVar[str] = (
        "Start it (`uv run python scripts/run_llamacpp.py` or `scripts/run_vllm.py`, `ollama serve`), or mend the "
        "settings of `judge` (`slimrl judge calibrate` tries it out)"
    )

    api_key_variable: str = "JUDGE_API_KEY"
