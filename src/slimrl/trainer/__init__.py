"""The trainer computes weight updates from samples. It never imports inference, environments or orchestrator."""
