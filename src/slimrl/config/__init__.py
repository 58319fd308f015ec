"""The configuration: its sections, the code that reads them (`reading/`), and the rules (`checks.py`, `rules.py`). This
package does not import torch."""
