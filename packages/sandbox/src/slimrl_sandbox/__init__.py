"""This package runs code that a model has written, in isolation. It does not depend on models, training or tools."""
