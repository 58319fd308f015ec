"""The configuration: its sections (here), how they are filled (`reading/`) and checked (`checks/`). Imports no
torch."""
