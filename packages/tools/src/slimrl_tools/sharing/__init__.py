"""Shares a run: writes the model card beside its weights, and uploads it to the Hugging Face Hub."""
