"""Tasks, their environments and the one agent loop."""
