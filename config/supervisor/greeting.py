"""What `up` prints when everything is ready: addresses, and how a phone joins."""

import io

import segno

from config.supervisor import run_file
from config.supervisor.plan import Options


def greeting(options: Options) -> str:
    public = options.public_url or options.url
    lines = [
        "Ready.",
        f"  page       {options.url}/",
        f"  lend       {public}/join",
        f"  API        {options.url}/v1   (key: api_key in {options.var_dir / run_file.RUN_FILE})",
        f"  logs       {options.logs}/",
        "Try, in another terminal:",
        '  .venv/bin/python manage.py generate "In the beginning" --max-tokens 64',
    ]
    if options.public_url:
        lines += _for_phones(options)
    return "\n".join([*lines, "Stop with Ctrl-C."])


def _for_phones(options: Options) -> list[str]:
    """How a device of the same network lends: in two steps where it has to trust us first."""
    link = f"{options.public_url}/worker"
    if options.https is None:
        return [
            "Phones of this network lend at",
            f"  {link}",
            qr_text(link),
            "It is plain HTTP: who shares the network can read along. `--lan --tls` gives HTTPS.",
        ]
    certificate = (
        f"http://{options.public_url.removeprefix('https://').rpartition(':')[0]}:{options.port}/authority.crt"
    )
    return [
        "Phones of this network lend over HTTPS. Each has to trust this server once:",
        f"  1. open {certificate} on it and install the certificate",
        "     (Android: Settings > Security > Encryption & credentials > Install a certificate > CA certificate;",
        "     iOS: install the profile, then Settings > General > About > Certificate Trust Settings).",
        f"     Its SHA-256 fingerprint must be {options.https.certificate.fingerprint}",
        qr_text(certificate),
        f"  2. open {link}",
        qr_text(link),
    ]


def qr_text(text: str) -> str:
    """A QR code of half blocks, two squares per letter; readable on dark and on light terminals."""
    out = io.StringIO()
    segno.make_qr(text, error="l").terminal(out=out, border=2, compact=True)
    return out.getvalue().rstrip("\n")
