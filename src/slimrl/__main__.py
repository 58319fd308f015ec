"""Runs the command `slimrl` as `python -m slimrl`."""

import sys

from slimrl.cli import main

sys.exit(main())
