"""`manage.py apikey create NAME [--trusted-only] | list | rotate ID | revoke ID`: keys of the OpenAI-compatible API."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand, CommandError

from inference import api_keys
from inference.api_keys import KeyView
from inference.errors import InferenceError


class Command(BaseCommand):
    help = "Create, list, rotate and revoke keys of the OpenAI-compatible API."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print JSON")
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help="make a key; it is shown once and cannot be read again")
        create.add_argument("name", help="who or what uses it")
        create.add_argument(
            "--trusted-only", action="store_true", help="only workers that earned trust may see rows of its requests"
        )
        rotate = actions.add_parser("rotate", help="another secret for the same key; the old one ends")
        rotate.add_argument("id", type=int, help="its number in the list")
        actions.add_parser("list", help="all keys, revoked ones too, without their secrets")
        revoke = actions.add_parser("revoke", help="end a key for good")
        revoke.add_argument("id", type=int, help="its number in the list")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['action']}")(options)
        except InferenceError as error:
            raise CommandError(str(error)) from error

    def _create(self, options: dict[str, Any]) -> None:
        self._show(*api_keys.create_key(options["name"], trusted_only=options["trusted_only"]), options)

    def _rotate(self, options: dict[str, Any]) -> None:
        rotated = api_keys.rotate_key(options["id"])
        if rotated is None:
            raise CommandError(f"there is no valid key {options['id']}: `manage.py apikey list` shows them")
        self._show(*rotated, options)

    def _show(self, view: KeyView, key: str, options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(json.dumps({**as_json(view), "key": key}))
            return
        self.stderr.write(f"Key {view.key_id} ({view.name}). Keep it now: it cannot be shown again.")
        self.stdout.write(key)

    def _list(self, options: dict[str, Any]) -> None:
        views = api_keys.list_keys()
        if options["json"]:
            self.stdout.write(json.dumps([as_json(view) for view in views]))
            return
        self.stdout.write(f"{'id':>4}  {'key':<16} {'created':<17} {'last used':<17} {'state':<8} name")
        for view in views:
            used = f"{view.last_used_at:%Y-%m-%d %H:%M}" if view.last_used_at else "never"
            state = "revoked" if view.is_revoked else "valid"
            self.stdout.write(
                f"{view.key_id:>4}  {view.hint:<16} {view.created_at:%Y-%m-%d %H:%M}  {used:<17} {state:<8} {view.name}"
            )

    def _revoke(self, options: dict[str, Any]) -> None:
        if not api_keys.revoke_key(options["id"]):
            raise CommandError(f"there is no valid key {options['id']}: `manage.py apikey list` shows them")
        self.stdout.write(json.dumps({"revoked": options["id"]}) if options["json"] else f"Revoked {options['id']}.")


def as_json(view: KeyView) -> dict[str, Any]:
    """A key without its secret; times in ISO 8601, UTC."""
    return {
        "id": view.key_id,
        "name": view.name,
        "hint": view.hint,
        "trusted_only": view.trusted_only,
        "created_at": view.created_at.isoformat(),
        "last_used_at": view.last_used_at and view.last_used_at.isoformat(),
        "revoked_at": view.revoked_at and view.revoked_at.isoformat(),
    }
