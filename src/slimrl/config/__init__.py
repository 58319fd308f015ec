"""The configuration: its sections (here), how to read them (`reading/`) and check them (`checks/`). Does not import
torch."""
