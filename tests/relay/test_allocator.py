"""relay/allocator.py: what glibc is told. The gain is measured by `manage.py bench relay`."""

import platform

from relay.allocator import keep_freed_memory


def test_glibc_takes_the_wishes_and_nobody_else_is_asked() -> None:
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
