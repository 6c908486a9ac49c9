"""Looks at the database, Redis, and the clocks of both against ours."""

import time
from collections.abc import Iterator
from typing import Any

import redis
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from config.doctor.deployment import Deployment
from config.doctor.findings import Finding, error, fine, warning

ANSWER_SECONDS = 5.0
CLOCK_WARNING_SECONDS, CLOCK_ERROR_SECONDS = 1.0, 10.0
OLDEST_POSTGRES = 130000
CONNECTIONS_WANTED = 100
CLOCK_TODO = "Run a time service on every host (chrony or systemd-timesyncd): leases and credit windows carry times."


def database() -> Iterator[Finding]:
    try:
        with connection.cursor() as cursor:
            began = time.monotonic()
            cursor.execute("SELECT 1")
            milliseconds = 1000 * (time.monotonic() - began)
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
        yield from _postgres() if connection.vendor == "postgresql" else _sqlite()
    except DatabaseError as problem:
        reason = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        yield error("database", f"does not answer: {reason}", "Start it, or correct DATABASE_URL.")
        return
    yield fine("database", f"{connection.vendor} answers in {milliseconds:.1f} ms")
    if missing:
        names = ", ".join(f"{step.app_label}.{step.name}" for step, _ in missing[:3])
        yield error("migrations", f"{len(missing)} are not applied ({names})", "Run `manage.py migrate`.")
    else:
        yield fine("migrations", "all applied")


def _postgres() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        names = ("server_version_num", "fsync", "synchronous_commit", "max_connections", "server_encoding")
        found = {}
        for name in names:
            cursor.execute(f"SHOW {name}")
            found[name] = str(cursor.fetchone()[0])
    if int(found["server_version_num"]) < OLDEST_POSTGRES:
        yield error("database version", f"PostgreSQL {found['server_version_num']}", "Upgrade to 13 or later.")
    if found["fsync"] != "on" or found["synchronous_commit"] == "off":
        what = f"fsync {found['fsync']}, synchronous_commit {found['synchronous_commit']}"
        yield warning("database durability", what, "Turn both on: a power cut would lose or tear the books.")
    else:
        yield fine("database durability", "fsync and synchronous_commit are on")
    if int(found["max_connections"]) < CONNECTIONS_WANTED:
        what = f"max_connections is {found['max_connections']}"
        yield warning("database connections", what, f"Allow {CONNECTIONS_WANTED}, or put PgBouncer in front.")
    if found["server_encoding"] != "UTF8":
        yield error("database encoding", found["server_encoding"], "Make a database with encoding UTF8 and restore.")


def _sqlite() -> Iterator[Finding]:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA journal_mode")
        mode = str(cursor.fetchone()[0])
    if mode != "wal":
        yield warning("database journal", f"journal_mode is {mode}", "Use the settings' own DATABASE_URL for SQLite.")


def store(deployment: Deployment) -> Iterator[Finding]:
    if not deployment.redis_url:
        todo = "Set REDIS_URL, or start everything with `manage.py up`."
        yield error("redis", "REDIS_URL is not set and no `manage.py up` runs on this VAR_DIR", todo)
        return
    try:
        with client_of(deployment) as client:
            began = time.monotonic()
            client.ping()
            milliseconds = 1000 * (time.monotonic() - began)
            info: Any = client.info()
            yield fine("redis", f"{info.get('redis_version')} answers in {milliseconds:.1f} ms")
            yield from _eviction(info)
            yield from _persistence(info)
    except redis.RedisError as problem:
        yield error("redis", f"does not answer: {problem}", "Start it, or correct REDIS_URL.")


def _eviction(info: dict[str, Any]) -> Iterator[Finding]:
    policy, limit = str(info.get("maxmemory_policy")), int(info.get("maxmemory", 0))
    if policy == "noeviction":
        yield fine("redis eviction", "noeviction")
    else:
        what = f"maxmemory-policy is {policy}, maxmemory {limit}"
        todo = "Set `maxmemory-policy noeviction`: queued work and tokens would vanish when memory runs out."
        yield (error if limit else warning)("redis eviction", what, todo)
    if limit and int(info.get("used_memory", 0)) > 0.8 * limit:
        what = f"{info['used_memory']} of {limit} bytes are used"
        yield warning("redis memory", what, "Raise maxmemory before writes are refused.")


def _persistence(info: dict[str, Any]) -> Iterator[Finding]:
    if int(info.get("aof_enabled", 0)):
        yield fine("redis persistence", "append-only file")
        return
    todo = "Set `appendonly yes`: otherwise a restart loses the queue, and generations start again after a rescue."
    yield warning("redis persistence", "no append-only file", todo)


def clocks(deployment: Deployment) -> Iterator[Finding]:
    """Our clock against those of the stores; a difference below the time a question takes means nothing."""
    for name, ask in (("database", _database_time), ("redis", _redis_time)):
        began = time.time()
        try:
            theirs = ask(deployment)
        except (DatabaseError, redis.RedisError):
            continue  # its own look says so
        if theirs is None:
            continue
        ended = time.time()
        difference = max(began - theirs, theirs - ended, 0.0)
        check, what = f"clock of {name}", f"{difference:.2f} s from ours"
        if difference > CLOCK_ERROR_SECONDS:
            yield error(check, what, CLOCK_TODO)
        elif difference > CLOCK_WARNING_SECONDS:
            yield warning(check, what, CLOCK_TODO)
        else:
            yield fine(check, what)


def _database_time(deployment: Deployment) -> float | None:
    if connection.vendor != "postgresql":
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())")
        return float(cursor.fetchone()[0])


def _redis_time(deployment: Deployment) -> float | None:
    if not deployment.redis_url:
        return None
    with client_of(deployment) as client:
        seconds, microseconds = client.time()
    return float(seconds) + float(microseconds) / 1e6


def client_of(deployment: Deployment) -> "redis.Redis":
    return redis.Redis.from_url(
        deployment.redis_url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS
    )
