"""config/supervisor/greeting.py: what people read when the server is ready, and what phones can scan."""

from dataclasses import replace
from pathlib import Path

import pytest

from config.supervisor.greeting import greeting, qr_text
from config.supervisor.launch import Lan, opened
from config.supervisor.plan import Options
from config.supervisor.supervise import StartFailed
from tests.config.test_plan import OPTIONS


def lan(tmp_path: Path, tls_port: int | None) -> Options:
    return opened(replace(OPTIONS, var_dir=tmp_path, host="0.0.0.0"), Lan(("phone.test",), tls_port))


def test_alone_it_names_this_machine_and_shows_no_code() -> None:
    text = greeting(OPTIONS)

    assert text.startswith("Ready.\n")
    assert "http://127.0.0.1:8000/join" in text
    assert "\u2588" not in text


def test_plain_http_has_one_code_and_a_warning(tmp_path: Path) -> None:
    options = lan(tmp_path, None)

    text = greeting(options)

    assert options.public_url == "http://phone.test:8000"
    assert "phone.test" in options.hosts
    assert qr_text("http://phone.test:8000/worker") in text
    assert "can read along" in text


def test_https_says_how_to_trust_it_and_has_a_code_for_each_step(tmp_path: Path) -> None:
    options = lan(tmp_path, 0)
    assert options.https is not None

    text = greeting(options)

    assert options.public_url == f"https://phone.test:{options.https.port}"
    assert qr_text("http://phone.test:8000/authority.crt") in text
    assert qr_text(f"{options.public_url}/worker") in text
    assert options.https.certificate.fingerprint in text


def test_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="--lan-name"):
        opened(OPTIONS, Lan(("not a name",)))
