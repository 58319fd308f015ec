"""The transfer of samples and weights between the orchestrator and the trainer."""
