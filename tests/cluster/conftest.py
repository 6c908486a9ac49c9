"""One cluster for all tests of this folder; they run in the order of the file, the last one stops it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.requirements_check import need


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need("nginx", shutil.which("nginx"), "apt-get install -y nginx")
    need("PostgreSQL", sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres")), "apt-get install -y postgresql")
    with Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running
