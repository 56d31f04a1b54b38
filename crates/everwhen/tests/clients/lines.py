"""Teaches Schemathesis to send lines of JSON as they are, not to ask for positions that are never reached (503, as documented), and not to
repeat a request under its key after it removed what that made: the first answer is what it is told then, as promised."""

import json

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(_, value):
    return value.encode("utf-8", "replace") if isinstance(value, str) else json.dumps(value).encode()


@schemathesis.hook
def map_query(_, query):
    return {name: value for name, value in (query or {}).items() if name != "min_position"}


@schemathesis.hook
def map_body(_, body):
    return {name: value for name, value in body.items() if name != "min_position"} if isinstance(body, dict) else body


@schemathesis.hook
def map_headers(_, headers):
    return {name: value for name, value in (headers or {}).items() if name.lower() != "idempotency-key"}
