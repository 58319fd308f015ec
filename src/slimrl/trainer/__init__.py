"""The trainer: from samples to a weight update. It never imports inference, environments or orchestrator."""
