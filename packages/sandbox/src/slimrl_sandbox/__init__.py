"""This package runs code that a model has written, isolated. It does not depend on models, training or tools."""
