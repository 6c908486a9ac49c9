"""Guards inside the database, for SQLite and PostgreSQL: history cannot be changed, and books cannot be unbalanced.

The zero sum is checked when a transaction commits, because the postings of one event are several rows. PostgreSQL has
deferred constraint triggers for this. SQLite has none, but it has deferred foreign keys: triggers keep, per event, the
sum of its postings as long as it is not zero in `market_imbalance`, and every row there points into `market_never`,
a table that is always empty. So a commit with an imbalance fails as a foreign key violation.
"""

from collections.abc import Callable
from typing import ClassVar

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

SQLITE_UP = [
    """CREATE TRIGGER market_event_no_update BEFORE UPDATE ON market_event
       BEGIN SELECT RAISE(ABORT, 'market_event is append-only'); END""",
    """CREATE TRIGGER market_event_no_delete BEFORE DELETE ON market_event
       BEGIN SELECT RAISE(ABORT, 'market_event is append-only'); END""",
    # INSERT OR REPLACE would delete the old row without asking the trigger above.
    """CREATE TRIGGER market_event_no_replace BEFORE INSERT ON market_event
       WHEN EXISTS (SELECT 1 FROM market_event WHERE position = NEW.position
                    OR (stream = NEW.stream AND version = NEW.version)
                    OR idempotency_key = NEW.idempotency_key)
       BEGIN SELECT RAISE(ABORT, 'market_event is append-only'); END""",
    "CREATE TABLE market_never (id INTEGER PRIMARY KEY, CHECK (0))",
    """CREATE TABLE market_imbalance (
           event_position BIGINT PRIMARY KEY,
           amount BIGINT NOT NULL,
           never INTEGER NOT NULL DEFAULT 1 REFERENCES market_never (id) DEFERRABLE INITIALLY DEFERRED)""",
    """CREATE TRIGGER market_posting_insert AFTER INSERT ON market_posting BEGIN
           INSERT INTO market_imbalance (event_position, amount) VALUES (NEW.event_position, NEW.amount_microcredits)
               ON CONFLICT (event_position) DO UPDATE SET amount = amount + NEW.amount_microcredits;
           DELETE FROM market_imbalance WHERE event_position = NEW.event_position AND amount = 0;
       END""",
    """CREATE TRIGGER market_posting_delete AFTER DELETE ON market_posting BEGIN
           INSERT INTO market_imbalance (event_position, amount) VALUES (OLD.event_position, -OLD.amount_microcredits)
               ON CONFLICT (event_position) DO UPDATE SET amount = amount - OLD.amount_microcredits;
           DELETE FROM market_imbalance WHERE event_position = OLD.event_position AND amount = 0;
       END""",
    """CREATE TRIGGER market_posting_update BEFORE UPDATE ON market_posting
       BEGIN SELECT RAISE(ABORT, 'market_posting is never updated'); END""",
]
SQLITE_DOWN = [
    "DROP TRIGGER market_event_no_update",
    "DROP TRIGGER market_event_no_delete",
    "DROP TRIGGER market_event_no_replace",
    "DROP TRIGGER market_posting_insert",
    "DROP TRIGGER market_posting_delete",
    "DROP TRIGGER market_posting_update",
    "DROP TABLE market_imbalance",
    "DROP TABLE market_never",
]
POSTGRESQL_UP = [
    """CREATE FUNCTION market_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN
           RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
       END $$""",
    """CREATE TRIGGER market_event_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON market_event
       FOR EACH STATEMENT EXECUTE FUNCTION market_refuse()""",
    """CREATE FUNCTION market_check_balance() RETURNS trigger LANGUAGE plpgsql AS $$
       DECLARE entry bigint; total numeric;
       BEGIN
           entry := CASE WHEN TG_OP = 'DELETE' THEN OLD.event_position ELSE NEW.event_position END;
           SELECT sum(amount_microcredits) INTO total FROM market_posting WHERE event_position = entry;
           IF total <> 0 THEN
               RAISE EXCEPTION 'postings of event % sum to % instead of zero', entry, total
                   USING ERRCODE = 'integrity_constraint_violation';
           END IF;
           RETURN NULL;
       END $$""",
    """CREATE CONSTRAINT TRIGGER market_posting_balanced AFTER INSERT OR DELETE ON market_posting
       DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION market_check_balance()""",
    """CREATE TRIGGER market_posting_update BEFORE UPDATE ON market_posting
       FOR EACH STATEMENT EXECUTE FUNCTION market_refuse()""",
]
POSTGRESQL_DOWN = [
    "DROP TRIGGER market_event_append_only ON market_event",
    "DROP TRIGGER market_posting_balanced ON market_posting",
    "DROP TRIGGER market_posting_update ON market_posting",
    "DROP FUNCTION market_check_balance()",
    "DROP FUNCTION market_refuse()",
]
STATEMENTS = {
    "sqlite": (SQLITE_UP, SQLITE_DOWN),
    "postgresql": (POSTGRESQL_UP, POSTGRESQL_DOWN),
}


def _run(which: int) -> Callable[[StateApps, BaseDatabaseSchemaEditor], None]:
    def run(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
        for statement in STATEMENTS[editor.connection.vendor][which]:
            editor.execute(statement, params=None)

    return run


class Migration(migrations.Migration):
    dependencies: ClassVar = [("market", "0001_tables")]
    operations: ClassVar = [migrations.RunPython(_run(0), _run(1))]
