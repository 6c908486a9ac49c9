"""A program that dies by a signal, for tests of those who start programs."""

import os
import signal

if __name__ == "__main__":
    os.kill(os.getpid(), signal.SIGKILL)
