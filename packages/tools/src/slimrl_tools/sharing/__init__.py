"""What leaves a run for others: the model card beside its weights, and uploads to the Hugging Face Hub."""
