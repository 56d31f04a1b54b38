"""Teaches Schemathesis what a document cannot say: how lines of JSON are sent, that a position beyond the end is waited for in vain (503, as
documented), that a key stands for one request, and that who guesses tokens is told to wait by where they come from."""

import itertools
import json
import random

import schemathesis
import urllib3.util.connection

# Every guess of `ignored_auth` comes from another address of this machine, so that each is answered and none is told to wait.
connect = urllib3.util.connection.create_connection
addresses = random.Random(1)
counter = itertools.count(1)


def from_anywhere(address, *args, **kwargs):
    kwargs["source_address"] = (f"127.{addresses.randint(1, 254)}.{addresses.randint(0, 255)}.{addresses.randint(1, 254)}", 0)
    args = args[:1]
    return connect(address, *args, **kwargs)


urllib3.util.connection.create_connection = from_anywhere


@schemathesis.serializer("application/x-ndjson")
def lines(_, value):
    return value.encode("utf-8", "replace") if isinstance(value, str) else json.dumps(value).encode()


def reached(values):
    """A position that is there, where one that may be is asked for; what is no position stays what it is."""
    at = values.get("min_position")
    if isinstance(at, int) and not isinstance(at, bool) and at > 0:
        return {**values, "min_position": at % 3}
    if isinstance(at, str) and at.isascii() and at.isdigit():
        return {**values, "min_position": str(int(at) % 3)}
    return values


@schemathesis.hook
def map_query(_, query):
    return reached(query) if query else query


@schemathesis.hook
def map_body(_, body):
    return reached(body) if isinstance(body, dict) else body


@schemathesis.hook
def map_headers(_, headers):
    """A key that was used with another request would be refused, and one that was used with the same be answered as then."""
    found = {}
    for name, value in (headers or {}).items():
        if name.lower() == "idempotency-key" and isinstance(value, str) and value.strip():
            value = f"{value[:200]}-{next(counter)}"
        found[name] = value
    # One connection, one address.
    found["Connection"] = "close"
    return found
