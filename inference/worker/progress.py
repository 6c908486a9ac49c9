"""A download's progress bar: only on a terminal, gone when the download is."""

import contextlib
from collections.abc import Iterator

from tqdm import tqdm

from inference.worker.download import Progress
from inference.worker.market_client import Claim


@contextlib.contextmanager
def progress_bar(claim: Claim) -> Iterator[Progress]:
    """A bar for one slice; call the value with (done_bytes, size_bytes)."""
    with tqdm(
        desc=str(claim),
        total=claim.size_bytes,
        unit="B",
        unit_scale=True,
        leave=False,
        disable=None,
        dynamic_ncols=True,
    ) as bar:

        def show(done_bytes: int, size_bytes: int) -> None:
            bar.total = size_bytes
            bar.update(done_bytes - bar.n)

        yield show
