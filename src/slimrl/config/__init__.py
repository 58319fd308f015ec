"""The configuration: its sections are here, the code that reads them is in `reading/`, and the rules are in `checks/`.
Does not import torch."""
