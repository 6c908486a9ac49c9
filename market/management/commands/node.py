"""`manage.py node`: what an operator does with a device or a person: suspend, quarantine, tokens, accounts, erase."""

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from market import commands
from market.errors import MarketError

ACTIONS = {
    "suspend": "end its claims and forbid new ones; its owner reads the reason",
    "reinstate": "end a suspension or quarantine",
    "quarantine": "suspend it and void what it has on hold",
    "rotate": "a new token, shown once",
    "revoke": "no token at all",
    "erase": "delete what is personal; the books stay",
}


class Command(BaseCommand):
    help = "Suspend, reinstate, quarantine, erase a device, change its token or its account."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        for name, text in ACTIONS.items():
            actions.add_parser(name, help=text).add_argument("node")
        link = actions.add_parser("link", help="put it into an account")
        link.add_argument("node")
        link.add_argument("owner", help="the account's id")
        owner = actions.add_parser("owner", help="make an account; prints its id")
        owner.add_argument("--name", default="")
        owner.add_argument("--payee", default="", help="where its money goes")
        erase_owner = actions.add_parser("erase-owner", help="erase a person with all their devices")
        erase_owner.add_argument("owner")
        for action in actions.choices.values():
            if action is not owner:
                action.add_argument("--by", required=True, help="who does this")
                action.add_argument("--reason", required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.stdout.write(self._act(options))
        except MarketError as problem:
            self.stderr.write(f"{problem.code}: {problem}")
            sys.exit(1)

    def _act(self, options: dict[str, Any]) -> str:
        node_id = options.get("node", "")
        why = {"by": options.get("by", ""), "reason": options.get("reason", "")}
        match options["action"]:
            case "suspend":
                commands.suspend_node(node_id, **why)
            case "reinstate":
                commands.reinstate_node(node_id, **why)
            case "quarantine":
                return f"{commands.quarantine_node(node_id, **why)} microcredits voided"
            case "rotate":
                return commands.rotate_token(node_id, **why)
            case "revoke":
                commands.revoke_token(node_id, **why)
            case "erase":
                commands.erase_node(node_id, **why)
            case "link":
                commands.link_node(node_id, options["owner"], **why)
            case "owner":
                return commands.create_owner(options["name"], options["payee"])
            case "erase-owner":
                return f"erased with {len(commands.erase_owner(options['owner'], **why))} devices"
        return "done"
