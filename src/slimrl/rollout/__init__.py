"""The agent loop, and what keeps it safe from the environments that it plays."""
