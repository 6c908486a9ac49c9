"""Runs the stage: with --server one that joins through the market, else one with a file and an address of its own."""

import sys

from inference.stage import joining, program

if __name__ == "__main__":
    is_joining = any(argument.split("=")[0] == "--server" for argument in sys.argv[1:])
    sys.exit(joining.main() if is_joining else program.main())
