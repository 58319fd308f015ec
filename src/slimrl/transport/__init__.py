"""The types in which samples and weights travel between the orchestrator and the trainer."""
