"""Teaches Schemathesis to send lines of JSON as they are."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(_, value):
    return value.encode("utf-8", "replace") if isinstance(value, str) else json.dumps(value).encode()
