"""From samples to a weight update. Never imports inference, environments or orchestrator."""
