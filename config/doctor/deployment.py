"""The deployment that is looked at: the settings, or the server that `manage.py up` runs on this VAR_DIR."""

import os
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from config.supervisor import run_file
from config.supervisor.plan import relay_url


@dataclass(frozen=True)
class Deployment:
    """pids: processes of this host that are known by number; is_embedded: started by `manage.py up`."""

    redis_url: str
    public_url: str
    relay_public_url: str
    model: Path
    var_dir: Path
    is_embedded: bool
    pids: dict[str, int]

    @property
    def is_https(self) -> bool:
        return self.public_url.startswith("https://")


def of_settings() -> Deployment:
    """Where `manage.py up` runs, its run.json says what the settings leave open."""
    try:
        run = run_file.read(settings.VAR_DIR)
    except run_file.ServerNotRunning:
        run = None
    is_embedded = run is not None and not settings.REDIS_URL
    public_url = run.url if run is not None and is_embedded else settings.PUBLIC_URL
    return Deployment(
        redis_url=run.redis_url if run is not None and is_embedded else settings.REDIS_URL,
        public_url=public_url,
        relay_public_url=settings.RELAY_PUBLIC_URL or relay_url(public_url),
        model=Path(run.model) if run is not None and is_embedded else settings.MODEL_PATH,
        var_dir=settings.VAR_DIR,
        is_embedded=is_embedded,
        pids=run.pids if run is not None and is_embedded else {"this process": os.getpid()},
    )
