"""`manage.py flush`, which also knows the append-only tables: it lifts their guards, empties, and puts them back.

Emptying a whole database is the one thing that history cannot survive by design; tests do it after every transaction
test, and Django asks before it does it elsewhere.
"""

from typing import Any

from django.core.management.commands.flush import Command as DjangoFlush
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

SQLITE_GUARD = "market_event_no_delete"


class Command(DjangoFlush):
    def handle(self, **options: Any) -> None:
        connection = connections[options["database"]]
        with connection.cursor() as cursor:
            restore = _lift_guards(connection)
            try:
                super().handle(**options)
            finally:
                cursor.execute(restore)


def _lift_guards(connection: BaseDatabaseWrapper) -> str:
    """Allows the deletion; the statement that forbids it again."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = %s", [SQLITE_GUARD])
            restore = str(cursor.fetchone()[0])
            cursor.execute(f"DROP TRIGGER {SQLITE_GUARD}")
            return restore
        cursor.execute("ALTER TABLE market_event DISABLE TRIGGER market_event_append_only")
        return "ALTER TABLE market_event ENABLE TRIGGER market_event_append_only"
