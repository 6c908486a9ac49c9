"""What stands before a public server: nginx with TLS on 443, and an authority of our own for its certificate."""

import ipaddress
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from inference.demos.replayed import DemoFailed

IDLE_SECONDS = 100
START_SECONDS = 10.0
NGINX = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    map $http_upgrade $connection_upgrade {{ default upgrade; "" ""; }}
    server {{
        listen {listen}:443 ssl;
        ssl_certificate {folder}/server.pem;
        ssl_certificate_key {folder}/server.key;
        client_max_body_size 2m;
        proxy_http_version 1.1;
        proxy_set_header Host $http_host;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection $connection_upgrade;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        proxy_set_header X-Forwarded-Proto $scheme;
        proxy_buffering off;
        proxy_read_timeout {idle}s;
        proxy_send_timeout {idle}s;
        location / {{ proxy_pass {upstream}; }}
    }}
}}
"""


def make_certificates(folder: Path, addresses: Sequence[str], days: int = 1) -> Path:
    """Writes ca.pem, server.pem and server.key (for these IP addresses); returns the path of ca.pem."""
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a demo")])
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, addresses[0])])
    now = datetime.now(UTC)

    def builder(subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        blank = x509.CertificateBuilder().subject_name(subject).issuer_name(authority_name).public_key(key)
        dated = blank.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=days))
        return dated.serial_number(x509.random_serial_number())

    authority = builder(authority_name, authority_key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address)) for address in addresses])
    server = builder(server_name, server_key.public_key()).add_extension(names, critical=False)
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(authority.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    (folder / "server.pem").write_bytes(server.sign(authority_key, hashes.SHA256()).public_bytes(pem))
    key_bytes = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "server.key").touch(mode=0o600)
    (folder / "server.key").write_bytes(key_bytes)
    return folder / "ca.pem"


@contextmanager
def nginx(folder: Path, listen: str, upstream: str, *, prefix: Sequence[str] = ()) -> Iterator[None]:
    """nginx on port 443 of `listen` before `upstream`, idle limit IDLE_SECONDS. Raises DemoFailed."""
    configuration = folder / "nginx.conf"
    text = NGINX.format(folder=folder, listen=listen, upstream=upstream, idle=IDLE_SECONDS)
    # Started by root, nginx would give up its rights and then not reach a private folder.
    configuration.write_text("user root;\n" + text)
    process = subprocess.Popen(
        [*prefix, "nginx", "-p", str(folder), "-c", str(configuration), "-e", str(folder / "nginx-error.log")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not (folder / "nginx.pid").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                assert process.stderr is not None
                raise DemoFailed(f"nginx did not start: {process.stderr.read().decode(errors='replace')[-500:]}")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.communicate()
