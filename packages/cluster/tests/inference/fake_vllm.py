"""The routes of vLLM that slimrl uses, answered as vLLM 0.32 does. It samples the numbers of its weights."""

import json
import re
from pathlib import Path
from typing import Any

from tests.io.replying import Answer, Asked


class FakeVllm:
    """A function for `replying.server`. A reply is `tokens_per_reply` times the token that its weights say."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {
            "model_config": {"logprobs_mode": "processed_logprobs"},
            "weight_transfer_config": {"backend": "slimrl"},
        }
        self.dev_mode = self.scale_out = True
        self.max_model_len = 64
        self.reset()

    def reset(self) -> None:
        """Be as after a start: with the first weights, and not paused."""
        self.version, self.token, self.paused = "default", 11, False
        self.updating = False
        self.new_token: int | None = None

    def __call__(self, asked: Asked) -> Answer:
        path = asked.path.partition("?")[0]
        known = path in ("/v1/models", "/inference/v1/generate") or self.dev_mode
        name = re.sub(r"\W+", "_", path.strip("/"))
        return getattr(self, name)(asked) if known else Answer(404, {"detail": "Not Found"})

    def v1_models(self, asked: Asked) -> Answer:
        return Answer(200, {"data": [{"id": "policy", "owned_by": "vllm", "max_model_len": self.max_model_len}]})

    def server_info(self, asked: Asked) -> Answer:
        return Answer(200, {"vllm_config": self.settings})

    def is_paused(self, asked: Asked) -> Answer:
        return Answer(200, {"is_paused": self.paused})

    def weight_info(self, asked: Asked) -> Answer:
        return Answer(200, {"weight_version": self.version})

    def pause(self, asked: Asked) -> Answer:
        assert asked.path.endswith("?mode=keep")
        self.paused = True
        return Answer(200, {"status": "paused"})

    def resume(self, asked: Asked) -> Answer:
        self.paused = False
        return Answer(200, {"status": "resumed"})

    def start_weight_update(self, asked: Asked) -> Answer:
        if self.updating or not self.paused:
            return Answer(500, {"error": {"message": "start_weight_update called while ..."}})
        self.updating = True
        return Answer(200, {"message": "Weight update started"})

    def update_weights(self, asked: Asked) -> Answer:
        directory = Path(asked.body["update_info"]["weight_dir"])
        if not self.updating or not directory.is_dir():
            self.updating = False
            return Answer(500, {"error": {"message": f"Worker failed with error {directory}"}})
        self.new_token = json.loads((directory / "token").read_text())
        return Answer(200, {"message": "Weights updated"})

    def finish_weight_update(self, asked: Asked) -> Answer:
        assert self.updating and self.new_token is not None
        self.updating, self.version, self.token = False, asked.body["weight_version"], self.new_token
        return Answer(200, {"message": "Weight update finished"})

    def inference_v1_generate(self, asked: Asked) -> Answer:
        if not self.scale_out:
            return Answer(403, {"error": {"message": "Scale-out endpoints are disabled."}})
        return self.reply([(self.version, 2)])

    def reply(self, spans: list[tuple[str, int]], finish_reason: str = "length") -> Answer:
        """Tokens of several versions, so many of each."""
        starts = [sum(num for _, num in spans[:place]) for place in range(len(spans) + 1)]
        versions = [
            {"version": version, "start": starts[place], "end": starts[place + 1]}
            for place, (version, _) in enumerate(spans)
        ]
        content = [{"token_id": self.token, "logprob": -0.5, "rank": 1, "top_logprobs": []}] * starts[-1]
        choice = {
            "index": 0,
            "finish_reason": finish_reason,
            "token_ids": [self.token] * starts[-1],
            "logprobs": {"content": content},
            "weight_versions": versions,
        }
        return Answer(200, {"request_id": "1", "choices": [choice]})
