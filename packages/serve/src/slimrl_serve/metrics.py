"""Collects the metrics of engine and requests for `/metrics`, in Prometheus' text format.

Gauges and counters of the engine are read at each request for `/metrics`. Histograms are updated when completions
finish.
"""

import time
from collections import deque
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from slimrl.inference.engine import EngineCounters
from slimrl_serve.worker import EngineThread

# Upper bounds of the histograms' buckets.
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300)
RATE_WINDOW_S = 10.0  # tokens per second are averaged over at least this long


class ServerMetrics(Collector):
    """The counters and histograms of requests, and the engine's gauges. The names equal vLLM's except for the
    prefix."""

    def __init__(self, thread: EngineThread, model: str) -> None:
        self._thread = thread
        self._model = model
        self._samples = deque([(time.monotonic(), 0)])
        self.registry = registry = CollectorRegistry()
        registry.register(self)
        full = "Requests refused because the queue was full."
        self.rejected = Counter("slimrl:requests_rejected", full, registry=registry)
        left = "Completions given up because the client went away."
        self.disconnects = Counter("slimrl:disconnects", left, registry=registry)
        ended = "Completions that ended, by reason."
        self.finished = Counter("slimrl:request_success", ended, ["finished_reason"], registry=registry)
        whole = "slimrl:e2e_request_latency_seconds", "From arrival to the last token of a completion."
        self.latency = Histogram(*whole, buckets=SECONDS, registry=registry)
        first = "slimrl:time_to_first_token_seconds", "From arrival to the first token of a completion."
        self.first_token = Histogram(*first, buckets=SECONDS, registry=registry)

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the engine's metrics; they are zero while the model is loading."""
        loaded = self._thread.loaded
        engine = loaded.result() if loaded.done() and loaded.exception() is None else None
        load, counters = self._thread.load, engine.counters if engine else EngineCounters()
        prompt, gauge, counter = counters.prefilled + counters.cached, GaugeMetricFamily, CounterMetricFamily
        hit_rate, rate = counters.cached / max(1, prompt), self._rate(counters.sampled)
        for kind, name, meaning, value in (
            (gauge, "num_requests_running", "Completions that have a slot.", load.running),
            (gauge, "num_requests_waiting", "Completions that wait for a slot.", load.waiting),
            (gauge, "kv_cache_usage_perc", "Share of the key-value cache in use by running completions.", load.kv_use),
            (gauge, "prefix_cache_hit_rate", "Share of prompt tokens taken from the cache.", hit_rate),
            (gauge, "generation_tokens_per_second", "Sampled tokens, over the last seconds.", rate),
            (gauge, "weight_version", "Number of the served weights.", engine.version if engine else 0),
            (gauge, "paused", "1 while sampling is paused.", float(self._thread.paused)),
            (counter, "prompt_tokens", "Prompt tokens of completions, computed or cached.", prompt),
            (counter, "prefill_tokens", "Prompt tokens that were computed.", counters.prefilled),
            (counter, "prefix_cache_queries", "Prompt tokens looked for in the cache.", prompt),
            (counter, "prefix_cache_hits", "Prompt tokens taken from the cache.", counters.cached),
            (counter, "generation_tokens", "Tokens sampled.", counters.sampled),
        ):
            metric = kind(f"slimrl:{name}", meaning, labels=["model_name"])
            metric.add_metric([self._model], value)
            yield metric

    def _rate(self, sampled: int) -> float:
        """Return the tokens per second since the newest collection that is at least `RATE_WINDOW_S` old. If none is
        that old, use the oldest collection."""
        now = time.monotonic()
        # Keep one sample that is older than the window, so that the rate covers all of it.
        while len(self._samples) > 1 and self._samples[1][0] < now - RATE_WINDOW_S:
            self._samples.popleft()
        then, before = self._samples[0]
        self._samples.append((now, sampled))
        return (sampled - before) / max(now - then, 1e-3)
