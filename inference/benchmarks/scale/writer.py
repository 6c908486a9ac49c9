"""One writer of events: `python -m inference.benchmarks.scale.writer`; {"seconds": s} -> {"events": n, "seconds": s}.

Credits of ten windows at a time, each a transaction with all that it changes in the read models, on DATABASE_URL.
"""

import json
import os
import sys
from time import perf_counter

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django

django.setup()

from inference.benchmarks.api.stack import MARK  # noqa: E402
from market.benchmarks import measure  # noqa: E402

BATCH = 10


def main(build: str) -> None:
    # Writers of different processes must not register the same devices.
    measure.count_from(os.getpid() << 32)
    for line in sys.stdin:
        seconds, began, events = json.loads(line)["seconds"], perf_counter(), 0
        while perf_counter() - began < seconds:
            measure.append_projected_seconds(BATCH, build)
            events += BATCH + 1
        print(MARK + json.dumps({"events": events, "seconds": perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
