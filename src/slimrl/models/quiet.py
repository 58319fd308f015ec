"""Hides the progress bars of transformers."""

import contextlib
from collections.abc import Iterator

from transformers.utils import logging as transformers_logging


@contextlib.contextmanager
def no_progress_bars() -> Iterator[None]:
    """Context manager: hide the progress bars of transformers, which break up our console output."""
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
