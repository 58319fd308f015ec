"""Puts the two halves together: the only code that knows both the orchestrator and the trainer."""
