"""config/supervisor/authority.py: an authority that signs for local names only; certificates that clients accept."""

import datetime
import ssl
import stat
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509

from config.supervisor import authority
from config.supervisor.authority import Certificate, certificate_for
from config.supervisor.lan import LanNames

NOW = datetime.datetime.now(datetime.UTC)
NAMES = LanNames(("phone.test", "localhost"), (ip_address("192.168.1.7"), ip_address("127.0.0.1")), "phone.test")


def connect(made: Certificate, name: str) -> str:
    """A TLS handshake in memory; the protocol's version. Raises ssl.SSLError when the client trusts it not."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(made.certificate, made.key)
    client = ssl.create_default_context(cafile=str(made.authority))
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(down, up, server_hostname=name)
    theirs = server.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return str(ours.version())


@pytest.mark.parametrize("name", ["phone.test", "localhost", "192.168.1.7", "127.0.0.1"])
def test_a_client_that_trusts_the_authority_accepts_every_name(tmp_path: Path, name: str) -> None:
    assert connect(certificate_for(tmp_path, NAMES, NOW), name) == "TLSv1.3"


def test_another_name_is_refused(tmp_path: Path) -> None:
    made = certificate_for(tmp_path, NAMES, NOW)

    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        connect(made, "elsewhere.test")


def test_the_authority_cannot_sign_for_the_rest_of_the_world(tmp_path: Path) -> None:
    made = certificate_for(tmp_path, NAMES, NOW)
    stolen = authority._read(made.authority, made.authority.with_suffix(".key"))
    assert stolen is not None
    bank = LanNames(("bank.example",), (), "bank.example")

    authority._write(made.certificate, made.key, authority._new_server(bank, *stolen, NOW))

    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree"):
        connect(made, "bank.example")


def test_private_files_are_for_their_owner_only(tmp_path: Path) -> None:
    made = certificate_for(tmp_path, NAMES, NOW)

    files = list(made.key.parent.iterdir())
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(made.key.parent.stat().st_mode) == 0o700
    assert len(files) == 4


def test_a_second_start_keeps_both(tmp_path: Path) -> None:
    first = certificate_for(tmp_path, NAMES, NOW)
    texts = [path.read_bytes() for path in (first.authority, first.certificate, first.key)]

    second = certificate_for(tmp_path, NAMES, NOW)

    assert [path.read_bytes() for path in (second.authority, second.certificate, second.key)] == texts
    assert second.fingerprint == first.fingerprint
    assert len(second.fingerprint) == 95


@pytest.mark.parametrize(
    ("names", "days"), [(LanNames(("other.test",), NAMES.addresses, "other.test"), 0), (NAMES, authority.SERVER_DAYS)]
)
def test_other_names_or_a_year_give_a_new_certificate_by_the_same_authority(
    tmp_path: Path, names: LanNames, days: int
) -> None:
    first = certificate_for(tmp_path, NAMES, NOW)
    serial = x509.load_pem_x509_certificate(first.certificate.read_bytes()).serial_number

    second = certificate_for(tmp_path, names, NOW + datetime.timedelta(days=days))

    assert second.fingerprint == first.fingerprint
    assert x509.load_pem_x509_certificate(second.certificate.read_bytes()).serial_number != serial


def test_a_name_that_the_authority_may_not_sign_needs_a_new_one(tmp_path: Path) -> None:
    first = certificate_for(tmp_path, NAMES, NOW)

    second = certificate_for(tmp_path, LanNames(("swarm.example",), NAMES.addresses, "swarm.example"), NOW)

    assert second.fingerprint != first.fingerprint
    assert connect(second, "swarm.example") == "TLSv1.3"


def test_a_spoiled_file_is_made_anew(tmp_path: Path) -> None:
    first = certificate_for(tmp_path, NAMES, NOW)
    first.key.write_text("nonsense")

    assert connect(certificate_for(tmp_path, NAMES, NOW), "phone.test") == "TLSv1.3"
