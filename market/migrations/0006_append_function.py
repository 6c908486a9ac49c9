"""One append as a function of PostgreSQL: `market.store` says why. SQLite's statement stands there whole."""

from typing import ClassVar

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

# document: [[stream, number of the event in its stream within this append, name, schema version, body], ...]
# The caller holds the append lock. Every statement of a volatile function sees what was committed before it began.
UP = """CREATE FUNCTION market_append(document jsonb, first_key text, at timestamptz)
    RETURNS TABLE ("position" bigint, version integer) LANGUAGE plpgsql AS $$
    DECLARE head bigint;
    BEGIN
        SELECT COALESCE(MAX(e.position), 0) INTO head FROM market_event e;
        RETURN QUERY INSERT INTO market_event AS written (position, stream, version, append_position, name,
                                                          schema_version, body, idempotency_key, recorded_at)
            SELECT head + number, item->>0,
                   COALESCE((SELECT MAX(e.version) FROM market_event e WHERE e.stream = item->>0), 0)
                       + (item->>1)::integer,
                   head + 1, item->>2, (item->>3)::smallint, item->4, CASE WHEN number = 1 THEN first_key END, at
            FROM jsonb_array_elements(document) WITH ORDINALITY AS items(item, number)
            RETURNING written.position, written.version;
    END $$"""
DOWN = "DROP FUNCTION market_append(jsonb, text, timestamptz)"


def _up(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute(UP, params=None)


def _down(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute(DOWN, params=None)


class Migration(migrations.Migration):
    dependencies: ClassVar = [("market", "0005_claims_by_time")]
    operations: ClassVar = [migrations.RunPython(_up, _down)]
