"""Where the frame of the papers' experiments is. Importing this makes `import frame` work, as the frame is no installed package."""

import sys
from pathlib import Path

PAPERS = Path(__file__).resolve().parent.parent.parent / "bench/papers"
TIMEOUT_S = 240

sys.path.insert(0, str(PAPERS))

from frame.catalogue import Experiment  # noqa: E402, F401  (found by the line above)
