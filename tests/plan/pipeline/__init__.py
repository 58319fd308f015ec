"""Tests of the model of the pipeline."""
