"""Adapters that let other frameworks train on slimrl's environments. No such framework is imported."""
