"""What server and clients of the bench agree on."""

BACKBONE_TOKEN = "backbone of the bench"
BUILD = "be" * 16
SHA256 = "ab" * 32
LAYER = 3
CLAIMS = 1
