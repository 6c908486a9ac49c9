"""inference/api_keys.py and `manage.py apikey`: keys are random, shown once, stored as digests, ended for good."""

import json
import stat
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from inference import api_keys
from inference.errors import BadParameter
from inference.models import ApiKey

pytestmark = pytest.mark.django_db


def apikey(*arguments: str) -> Any:
    """What the command prints, read as JSON."""
    output = StringIO()
    call_command("apikey", "--json", *arguments, stdout=output)
    return json.loads(output.getvalue())


def test_a_key_opens_the_api_and_only_its_digest_is_stored() -> None:
    view, key = api_keys.create_key("Alice's notebook")

    assert key.startswith("sk-es-")
    assert len(key) == len("sk-es-") + 43  # 256 bits in base64
    found = api_keys.authenticate(key)
    assert found is not None
    assert found.key_id == view.key_id
    stored = ApiKey.objects.values().get(pk=view.key_id)
    assert key not in str(stored)
    assert stored["key_sha256"] == api_keys.key_sha256(key)


@pytest.mark.parametrize("text", ["", "sk-es-", "sk-es-" + "x" * 43, "x" * 5000, "sk-es-\ud800", "ключ"])
def test_any_other_text_is_nobody(text: str) -> None:
    api_keys.create_key("Alice")

    assert api_keys.authenticate(text) is None


def test_a_revoked_key_is_refused_and_stays_listed() -> None:
    view, key = api_keys.create_key("Mallory")

    assert api_keys.revoke_key(view.key_id)
    assert not api_keys.revoke_key(view.key_id)
    assert not api_keys.revoke_key(2**70)

    assert api_keys.authenticate(key) is None
    assert [(found.name, found.is_revoked) for found in api_keys.list_keys()] == [("Mallory", True)]


def test_its_last_use_is_noted_at_most_once_a_minute() -> None:
    view, key = api_keys.create_key("Alice")
    api_keys.authenticate(key)
    first = ApiKey.objects.get(pk=view.key_id).last_used_at

    api_keys.authenticate(key)
    again = ApiKey.objects.get(pk=view.key_id).last_used_at
    ApiKey.objects.update(last_used_at=timezone.now() - timedelta(minutes=2))
    api_keys.authenticate(key)
    later = ApiKey.objects.get(pk=view.key_id).last_used_at

    assert first is not None
    assert again == first
    assert later is not None
    assert later >= first


@pytest.mark.parametrize("name", ["", "   ", "x" * 101])
def test_a_name_is_one_to_a_hundred_characters(name: str) -> None:
    with pytest.raises(BadParameter, match="1 to 100"):
        api_keys.create_key(name)


def test_the_development_key_is_made_once_and_only_its_owner_can_read_it(var_dir: Path) -> None:
    key = api_keys.ensure_development_key()

    assert api_keys.ensure_development_key() == key
    assert api_keys.authenticate(key) is not None
    assert len(api_keys.list_keys()) == 1
    assert stat.S_IMODE((var_dir / "development.key").stat().st_mode) == 0o600


def test_a_revoked_development_key_is_replaced(var_dir: Path) -> None:
    key = api_keys.ensure_development_key()
    api_keys.revoke_key(api_keys.list_keys()[0].key_id)

    fresh = api_keys.ensure_development_key()

    assert fresh != key
    assert api_keys.authenticate(key) is None
    assert api_keys.authenticate(fresh) is not None


def test_the_command_creates_lists_and_revokes() -> None:
    made = apikey("create", "Bob")
    listed = apikey("list")
    assert api_keys.authenticate(made["key"]) is not None

    revoked = apikey("revoke", str(made["id"]))

    assert "key" not in listed[0]
    assert (listed[0]["name"], listed[0]["revoked_at"]) == ("Bob", None)
    assert revoked == {"revoked": made["id"]}
    assert api_keys.authenticate(made["key"]) is None
    with pytest.raises(CommandError, match="no valid key"):
        apikey("revoke", str(made["id"]))


def test_the_command_prints_the_key_alone_on_stdout() -> None:
    output, remark, table = StringIO(), StringIO(), StringIO()

    call_command("apikey", "create", "Bob", stdout=output, stderr=remark)
    call_command("apikey", "list", stdout=table)

    assert api_keys.authenticate(output.getvalue().strip()) is not None
    assert "cannot be shown again" in remark.getvalue()
    assert "Bob" in table.getvalue()
    assert output.getvalue().strip() not in table.getvalue()


def test_a_rotated_key_keeps_its_number_and_wish_and_its_old_secret_ends() -> None:
    made = apikey("create", "Alice", "--trusted-only")

    rotated = apikey("rotate", str(made["id"]))

    assert api_keys.authenticate(made["key"]) is None
    found = api_keys.authenticate(rotated["key"])
    assert found is not None
    assert (found.key_id, found.name, found.trusted_only) == (made["id"], "Alice", True)
    assert rotated["key"].startswith(found.hint.removesuffix("..."))


def test_a_revoked_key_cannot_be_rotated() -> None:
    view, _key = api_keys.create_key("Mallory")
    api_keys.revoke_key(view.key_id)

    with pytest.raises(CommandError, match="no valid key"):
        apikey("rotate", str(view.key_id))
