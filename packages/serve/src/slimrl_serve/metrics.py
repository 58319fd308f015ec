"""Collects the metrics of engine and requests for `/metrics`, in Prometheus' text format.

Gauges and counters of the engine are read on request; only histograms are updated, when requests finish.
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


class ServerMetrics:
    """The counters and histograms of requests, and the engine's gauges. Names are vLLM's with another prefix."""

    def __init__(self, thread: EngineThread, model: str) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_EngineCollector(thread, model))
        self.rejected = Counter(
            "slimrl:requests_rejected", "Requests refused because the queue was full.", registry=self.registry
        )
        self.disconnects = Counter(
            "slimrl:disconnects", "Completions given up because the client went away.", registry=self.registry
        )
        self.finished = Counter(
            "slimrl:request_success", "Completions that ended, by reason.", ["finished_reason"], registry=self.registry
        )
        self.latency = Histogram(
            "slimrl:e2e_request_latency_seconds",
            "From arrival to the last token of a completion.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.first_token = Histogram(
            "slimrl:time_to_first_token_seconds",
            "From arrival to the first token of a completion.",
            buckets=SECONDS,
            registry=self.registry,
        )


class _EngineCollector(Collector):
    """Reads the engine's metrics when they are collected."""

    def __init__(self, thread: EngineThread, model: str) -> None:
        self._thread = thread
        self._model = model
        self._samples: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        load, counters = self._thread.load, self._counters()
        prompt = counters.prefilled + counters.cached
        gauges = (
            ("num_requests_running", "Completions that have a slot.", load.running),
            ("num_requests_waiting", "Completions that wait for a slot.", load.waiting),
            ("kv_cache_usage_perc", "Share of the key-value cache in use by running completions.", load.kv_use),
            ("prefix_cache_hit_rate", "Share of prompt tokens taken from the cache.", counters.cached / max(1, prompt)),
            ("generation_tokens_per_second", "Sampled tokens, over the last seconds.", self._rate(counters.sampled)),
            ("weight_version", "Number of the weights that are served.", self._version()),
            ("paused", "Whether sampling is paused.", float(self._thread.paused)),
        )
        for name, meaning, value in gauges:
            gauge = GaugeMetricFamily(f"slimrl:{name}", meaning, labels=["model_name"])
            gauge.add_metric([self._model], value)
            yield gauge
        totals = (
            ("prompt_tokens", "Prompt tokens of completions, computed or cached.", prompt),
            ("prefill_tokens", "Prompt tokens that were computed.", counters.prefilled),
            ("prefix_cache_queries", "Prompt tokens looked for in the cache.", prompt),
            ("prefix_cache_hits", "Prompt tokens taken from the cache.", counters.cached),
            ("generation_tokens", "Tokens sampled.", counters.sampled),
            ("guessed_tokens", "Tokens guessed ahead by looking them up.", counters.guessed),
            ("guessed_tokens_right", "Guesses that were sampled.", counters.guessed_right),
        )
        for name, meaning, total in totals:
            counter = CounterMetricFamily(f"slimrl:{name}", meaning, labels=["model_name"])
            counter.add_metric([self._model], total)
            yield counter

    def _counters(self) -> EngineCounters:
        # Metrics are also requested while the model is loading; then they are zero.
        return self._thread.loaded.result().counters if self._is_loaded() else EngineCounters()

    def _version(self) -> int:
        return self._thread.loaded.result().version if self._is_loaded() else 0

    def _is_loaded(self) -> bool:
        return self._thread.loaded.done() and self._thread.loaded.exception() is None

    def _rate(self, sampled: int) -> float:
        """Return tokens per second since the latest collection that is at least the window old, or the oldest one."""
        now = time.monotonic()
        # Keep one sample that is older than the window, so that the rate covers all of it.
        while len(self._samples) > 1 and self._samples[1][0] < now - RATE_WINDOW_S:
            self._samples.popleft()
        then, before = self._samples[0]
        self._samples.append((now, sampled))
        return (sampled - before) / max(now - then, 1e-3)
