"""How the tests start the command `strata`: in the Python that runs them."""

import sys

COMMAND = [sys.executable, "-m", "strata"]
TIMEOUT_S = 300
