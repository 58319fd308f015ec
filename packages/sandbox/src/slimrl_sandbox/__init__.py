"""This package runs code that a model has written, isolated. It knows nothing of models, training or what tools do."""
