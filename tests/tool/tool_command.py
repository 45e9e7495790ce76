"""How the tests start the command `strata`: in the Python that runs them."""

import os
import sys

COMMAND = [sys.executable, "-m", "strata"]
TIMEOUT_S = 300
# Put before it, the command may not do what only root may: read what its mode forbids.
ORDINARY_RIGHTS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
