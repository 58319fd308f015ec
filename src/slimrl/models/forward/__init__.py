"""The one forward pass that sampling and training share, and its faster equals."""
