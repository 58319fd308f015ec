"""The same as `setup_environment.py`, under an older name."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_name("setup_environment.py")), run_name="__main__")
