"""The internet in one machine, for M2 and its test: hosts behind a NAT, slow lines, nginx with TLS on 443."""
