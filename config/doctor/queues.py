"""Looks at Celery: that every process has the same visibility timeout, that both queues are consumed, that backbones
live and are connected to their relays."""

import time
from collections.abc import Iterator
from typing import Any

import redis
from celery import Celery
from kombu.exceptions import KombuError

from config.celery import CANARY_SECONDS, QUEUES, app
from config.doctor.deployment import Deployment
from config.doctor.findings import Finding, error, fine, warning
from config.doctor.stores import client_of
from inference import backbone_status

ASK_SECONDS = 2.0
OLD_CANARY_SECONDS = 3 * CANARY_SECONDS + 5
TIMEOUT_TODO = (
    "Use the same CELERY_VISIBILITY_TIMEOUT_SECONDS (config/settings.py) in every process and restart all of them: "
    "Redis hands a task out again after the shortest one."
)


def visibility_timeouts(deployment: Deployment) -> Iterator[Finding]:
    """In the settings of broker and results, in the transport as it reads them, and in every worker that runs."""
    if not deployment.redis_url:
        return
    found: dict[str, float | None] = {
        "broker_transport_options": app.conf.broker_transport_options.get("visibility_timeout"),
        "result_backend_transport_options": app.conf.result_backend_transport_options.get("visibility_timeout"),
    }
    asking = _asking_app(deployment)
    try:
        with asking.connection_for_write() as broker:
            found["transport of this process"] = broker.default_channel.visibility_timeout
        workers = asking.control.inspect(timeout=ASK_SECONDS).conf() or {}
    except (KombuError, redis.RedisError, OSError) as problem:
        yield error("celery", f"the broker does not answer: {problem}", "Start Redis, or correct REDIS_URL.")
        return
    for name, configuration in workers.items():
        for part in ("BROKER", "RESULT_BACKEND"):
            options = configuration.get(f"CELERY_{part}_TRANSPORT_OPTIONS") or {}
            found[f"{part.lower()} of worker {name}"] = options.get("visibility_timeout")
    wanted = found["broker_transport_options"]
    different = {place: value for place, value in found.items() if value is None or value != wanted}
    if different:
        what = "; ".join(f"{place}: {value}" for place, value in different.items())
        yield error("visibility timeout", what, TIMEOUT_TODO)
    else:
        yield fine("visibility timeout", f"{found['broker_transport_options']} s in all {len(found)} places")
    if not workers:
        yield error("celery workers", "none answers", "Start the workers of the queues backbone and upkeep.")


def _asking_app(deployment: Deployment) -> Celery:
    """Ours, at the broker of the deployment: `manage.py up` keeps it from its settings."""
    url = deployment.redis_url.replace("unix://", "redis+socket://")
    asking = Celery("doctor", broker=url, set_as_current=False)
    asking.conf.broker_transport_options = app.conf.broker_transport_options
    return asking


def canaries(deployment: Deployment) -> Iterator[Finding]:
    """Asked of a web process: the cache is the server's."""
    from config.doctor.reach import answer_of

    answer = answer_of(deployment, "/readyz")
    part: dict[str, Any] = answer.get("parts", {}).get("celery", {}) if answer else {}
    ages = part.get("canary_age_seconds", {})
    for queue in QUEUES:
        age = ages.get(queue)
        check, todo = f"queue {queue}", f"Start a worker of queue {queue}, and beat; see its log."
        if age is None or age > OLD_CANARY_SECONDS:
            yield error(check, "no task has run lately" if age is None else f"last task {age:.0f} s ago", todo)
        else:
            yield fine(check, f"last task {age:.0f} s ago")


def backbones(deployment: Deployment) -> Iterator[Finding]:
    if not deployment.redis_url:
        return
    try:
        with client_of(deployment) as client:
            statuses = backbone_status.all_statuses(client)
    except redis.RedisError:
        return  # its own look says so
    if not statuses:
        yield error("backbone", "none has spoken within the last seconds", "Start one; its log says why it ended.")
    for status in statuses:
        name = f"backbone {status['boot'][:6]}"
        connected = list(status.get("relays_connected", []))
        apart = abs(time.time() - float(status["at"]))
        what = f"{status['model']}, at {sum(connected)} of {len(connected)} relays, {status.get('workers', 0)} workers"
        if not connected or not all(connected):
            todo = "Let the backbone reach every RELAY_ADDRESS (firewall), with the same BACKBONE_TOKEN everywhere."
            yield error(name, what, todo)
        elif apart > ASK_SECONDS + backbone_status.TTL_SECONDS:
            yield warning(name, f"its clock is about {apart:.0f} s from ours", "Run a time service on its host.")
        else:
            yield fine(name, what)
