"""Reads the metrics of a run from its metrics.jsonl as series, and smooths and aligns the series.

Axes: `_R` runs, `_S` steps.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from slimrl.errors import UserError
from slimrl.io.run_dir import RunDir
from slimrl.monitor.sinks import read_metrics

Series = tuple[np.ndarray, np.ndarray]  # steps, values


def load_series(run_dir: Path) -> dict[str, Series]:
    """Return the metrics of a run by name, each as (steps, values) sorted by step. Raise UserError if the run has no
    metrics."""
    points: dict[str, dict[int, float]] = defaultdict(dict)
    path = RunDir(run_dir).metrics
    for step, metrics in read_metrics(path):
        for name, value in metrics.items():
            points[name][step] = value  # a step may have several lines; use the last value
    if not points:
        raise UserError(f"{path} has no metrics yet: there is nothing to draw.")
    return {name: (np.array(list(by)), np.array(list(by.values()), dtype=float)) for name, by in points.items()}


def smooth(values: np.ndarray, reach: int = -1) -> np.ndarray:
    """Return the moving average of `values` over `reach` values on each side of a point. If `reach` is -1, use a
    fortieth of the run (at least 1).

    The average is centred, so that the curve does not lag behind the points. Values that are not finite are left out.
    """
    reach = max(1, len(values) // 40) if reach < 0 else reach
    # At both ends the window is shorter, so that the curve has as many points as the series.
    parts = (values[max(0, middle - reach) : middle + reach + 1] for middle in range(len(values)))
    return np.array([part[np.isfinite(part)].mean() if np.isfinite(part).any() else math.nan for part in parts])


def common_steps(runs: Sequence[Series]) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps (S,) that occur in all R runs, and the values at these steps (R, S)."""
    shared = sorted(set.intersection(*(set(steps.tolist()) for steps, _ in runs)))
    tables = [dict(zip(steps.tolist(), values.tolist(), strict=True)) for steps, values in runs]
    return np.array(shared), np.array([[table[step] for step in shared] for table in tables])
