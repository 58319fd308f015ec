"""`python -m slimrl` is the command `slimrl`."""

import sys

from slimrl.cli import main

sys.exit(main())
