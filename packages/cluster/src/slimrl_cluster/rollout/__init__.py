"""Worker processes of environments on other machines: the host that starts them, and its client."""
