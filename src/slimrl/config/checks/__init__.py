"""Rules that no section can check alone: plain functions that raise and never change anything."""
