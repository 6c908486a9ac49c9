"""Tells Redis of this relay process, when it has an address of its own. Started by the ASGI application."""

import atexit
import logging

import redis
from django.conf import settings

from relay.directory import Registrar

logger = logging.getLogger(__name__)

_registrar: list[Registrar] = []


def start_registrar() -> None:
    """Registers this process until it ends; does nothing without RELAY_ADDRESS or Redis."""
    if _registrar or not settings.RELAY_ADDRESS or not settings.REDIS_URL:
        return
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=5, socket_connect_timeout=5)
    registrar = Registrar(client, settings.RELAY_ADDRESS, settings.RELAY_PUBLIC_URL)
    _registrar.append(registrar)
    registrar.start()
    atexit.register(registrar.stop)
    logger.info("this relay is registered as %s", settings.RELAY_ADDRESS)


def stop_registrar() -> None:
    """This process stops: whoever looks for a relay finds the others."""
    for registrar in _registrar:
        registrar.stop()


def public_urls() -> tuple[str, ...]:
    """Where workers find the relays of this server; empty when none is registered."""
    return _registrar[0].public_urls if _registrar else ()
