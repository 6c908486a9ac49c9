"""`python -m inference.worker`."""

import sys

from inference.worker.program import main

if __name__ == "__main__":
    sys.exit(main())
