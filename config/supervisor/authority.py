"""A certificate authority for one local network, and the server's certificate by it: for `up --lan --tls`.

Browsers give a page its full powers only over HTTPS, and no public authority signs `192.168.1.7`. So the server makes
an authority of its own, once; every device has to trust it by hand. It may sign for private addresses and local names
only: whoever steals its key cannot pose as a bank to the devices that trust it.
"""

import datetime
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from config.supervisor.lan import LanNames
from config.supervisor.private_file import write_private

FOLDER = "tls"
AUTHORITY = f"{FOLDER}/authority.pem"
AUTHORITY_DAYS = 3650
# Apple's systems refuse certificates that live longer than 825 days, and some browsers longer than 398.
SERVER_DAYS, RENEWED_DAYS = 397, 30
PRIVATE_NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "127.0.0.0/8", "fc00::/7",
                    "fe80::/10", "::1/128")  # fmt: skip
LOCAL_NAMES = ("localhost", "local", "lan", "home.arpa", "internal", "test")


@dataclass(frozen=True)
class Certificate:
    """Files: the authority's certificate, the server's, its key. fingerprint: SHA-256 of the authority, for people."""

    authority: Path
    certificate: Path
    key: Path
    fingerprint: str


def certificate_for(var_dir: Path, names: LanNames, now: datetime.datetime) -> Certificate:
    """Makes in VAR_DIR/tls (0700, files 0600) what is missing, too old, or was made for other names. Raises OSError."""
    folder = var_dir / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = [folder / name for name in ("authority.pem", "authority.key", "server.pem", "server.key")]
    authority, key = _kept_or_made(
        files[0],
        files[1],
        lambda: _new_authority(names, now),
        lambda one: _lives_on(one, now) and _may_sign(one, names),
    )
    _kept_or_made(
        files[2],
        files[3],
        lambda: _new_server(names, authority, key, now),
        lambda one: _lives_on(one, now) and _is_for(one, names) and _is_signed(one, authority),
    )
    digest = authority.fingerprint(hashes.SHA256()).hex().upper()
    pairs = ":".join(digest[place : place + 2] for place in range(0, len(digest), 2))
    return Certificate(files[0], files[2], files[3], pairs)


Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def _kept_or_made(
    path: Path, key_path: Path, make: Callable[[], Pair], is_good: Callable[[x509.Certificate], bool]
) -> Pair:
    kept = _read(path, key_path)
    if kept is not None and is_good(kept[0]):
        return kept
    made = make()
    _write(path, key_path, made)
    return made


def _write(path: Path, key_path: Path, pair: Pair) -> None:
    certificate, key = pair
    private = serialization.PrivateFormat.PKCS8
    text = key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()).decode()
    write_private(key_path, text)
    write_private(path, certificate.public_bytes(serialization.Encoding.PEM).decode())


def _read(path: Path, key_path: Path) -> Pair | None:
    """None where there is none yet, or what is there cannot be used."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return certificate, key


def _lives_on(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    return certificate.not_valid_after_utc > now + datetime.timedelta(days=RENEWED_DAYS)


def _may_sign(authority: x509.Certificate, names: LanNames) -> bool:
    allowed = authority.extensions.get_extension_for_class(x509.NameConstraints).value
    return set(_permitted(names)) <= set(allowed.permitted_subtrees or ())


def _is_for(certificate: x509.Certificate, names: LanNames) -> bool:
    told = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return set(told) == set(_alternatives(names))


def _is_signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _permitted(names: LanNames) -> list[x509.GeneralName]:
    networks = [ipaddress.ip_network(text) for text in PRIVATE_NETWORKS]
    networks += [
        ipaddress.ip_network(address)
        for address in names.addresses
        if not any(address.version == one.version and address in one for one in networks)
    ]
    hosts = [name for name in names.names if not any(f".{name}".endswith(f".{local}") for local in LOCAL_NAMES)]
    return [*(x509.DNSName(name) for name in (*LOCAL_NAMES, *hosts)), *(x509.IPAddress(one) for one in networks)]


def _alternatives(names: LanNames) -> list[x509.GeneralName]:
    return [*(x509.DNSName(name) for name in names.names), *(x509.IPAddress(one) for one in names.addresses)]


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # A phone's clock may be behind.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _new_authority(names: LanNames, now: datetime.datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # The date tells two authorities of one machine apart in a device's list.
    subject = _name(f"Expertswarm on {socket.gethostname()} {now:%Y-%m-%d %H:%M:%S}")
    builder = _builder(subject, subject, key.public_key(), AUTHORITY_DAYS, now)
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.NameConstraints(_permitted(names), None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _new_server(
    names: LanNames, authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey, now: datetime.datetime
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(names.best), authority.subject, key.public_key(), SERVER_DAYS, now)
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
        .add_extension(signer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return certificate, key
