"""Runs the stage."""

import sys

from inference.stage.program import main

if __name__ == "__main__":
    sys.exit(main())
