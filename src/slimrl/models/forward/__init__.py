"""The forward pass that sampling and training share, and faster implementations of it."""
