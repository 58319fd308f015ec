"""Shares a run: writes the model card beside the run's weights, and uploads both to the Hugging Face Hub."""
