"""What nobody should send: the server answers or hangs up, never with 5xx, does not grow, and serves everybody else."""

import json
import os
import random
import socket
import struct
import sys
import time
import urllib.request

from served import Served

SEED = 1
MEMORY_MIB_MAX = 200


def opened(server):
    host, port = server.address.split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def answered(sock):
    """The status of the answer, or None when the server hung up."""
    try:
        head = sock.recv(64)
    except (ConnectionError, TimeoutError):
        return None
    return int(head.split(b" ")[1]) if head.startswith(b"HTTP/1.1 ") else None


def resident_mib(server):
    with open(f"/proc/{server.process.pid}/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


def is_well(server):
    request = urllib.request.Request(server.url + "/livez")
    assert json.load(urllib.request.urlopen(request, timeout=20)) == {"live": True}


def head(server, method, path, *more):
    lines = [f"{method} {path} HTTP/1.1", f"host: {server.address}", f"authorization: Bearer {server.token}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def test_bodies_of_100_mb(server):
    document = json.load(urllib.request.urlopen(server.url + "/openapi.json", timeout=20))
    posts = [path for path, of in document["paths"].items() if "post" in of and "{" not in path and path != "/v1/backup"]
    for path in posts:
        with opened(server) as sock:
            sock.sendall(head(server, "POST", path, "content-type: application/json", "content-length: 100000000"))
            try:
                for _ in range(100):
                    sock.sendall(b"[" * 1_000_000)
            except (ConnectionError, TimeoutError):
                pass
            status = answered(sock)
            assert status is None or 400 <= status < 500, f"{path}: {status}"


def test_bodies_that_are_no_json(server):
    torture = [b"", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe{}", b'{"a":1,"a":2}', b'"\\ud800"', b"1e999999", b"nul", b"{}x", b"\x00" * 1000]
    document = json.load(urllib.request.urlopen(server.url + "/openapi.json", timeout=20))
    for path, methods in document["paths"].items():
        for method in methods:
            if method == "get" or path == "/v1/backup":
                continue
            filled = path.replace("{", "").replace("}", "")
            for body in torture:
                with opened(server) as sock:
                    sock.sendall(head(server, method.upper(), filled, "content-type: application/json", f"content-length: {len(body)}") + body)
                    status = answered(sock)
                    assert status is None or status < 500, f"{method} {path} {body[:20]}: {status}"


def test_heads_without_end(server):
    with opened(server) as sock:
        try:
            for _ in range(2_000):
                sock.sendall(b"x-filler: " + b"a" * 1_000 + b"\r\n")
        except (ConnectionError, TimeoutError):
            pass
        status = answered(sock)
        assert status is None or 400 <= status < 500, status


def test_many_who_say_little(server):
    """Slow heads and half-closed sockets: nobody else waits for them."""
    slow = [opened(server) for _ in range(300)]
    for i, sock in enumerate(slow):
        sock.sendall(b"POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n"[: 1 + i % 60])
        if i % 3 == 0:
            sock.shutdown(socket.SHUT_WR)
    begun = time.monotonic()
    for _ in range(20):
        is_well(server)
    assert time.monotonic() - begun < 10
    for sock in slow:
        sock.close()


def test_websockets_of_noise(server):
    chance = random.Random(SEED)
    upgrade = ["connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="]
    for _ in range(200):
        with opened(server) as sock:
            sock.sendall(head(server, "GET", "/v1/ws", *upgrade))
            assert b" 101 " in sock.recv(64)
            try:
                sock.sendall(chance.randbytes(chance.randrange(1, 5_000)))
            except ConnectionError:
                pass


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def test_http2_of_noise(server):
    chance = random.Random(SEED)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)
    abuses = [
        lambda: chance.randbytes(5_000),
        # Streams that are opened and taken back at once, settings and pings without end, windows that overflow.
        lambda: b"".join(frame(1, 5, 2 * i + 1, b"\x82\x86\x84\x41\x01x") + frame(3, 0, 2 * i + 1, struct.pack(">I", 8)) for i in range(5_000)),
        lambda: frame(4, 0, 0) * 20_000,
        lambda: frame(6, 0, 0, b"12345678") * 20_000,
        lambda: frame(8, 0, 0, struct.pack(">I", 0x7FFFFFFF)) * 10,
        lambda: frame(1, 1, 1, b"\x82") + frame(9, 0, 1, b"\x00" * 16_000) * 200,
    ]
    for abuse in abuses:
        with opened(server) as sock:
            try:
                sock.sendall(preface + abuse())
                sock.settimeout(2)
                while sock.recv(65_536):
                    pass
            except (ConnectionError, TimeoutError):
                pass
        is_well(server)


tests = [value for name, value in sorted(globals().items()) if name.startswith("test_")]
failed = 0
with Served() as server:
    before = resident_mib(server)
    for test in tests:
        try:
            test(server)
            is_well(server)
            grown = resident_mib(server) - before
            assert grown < MEMORY_MIB_MAX, f"{grown:.0f} MiB more"
            print(f"ok     {test.__name__} ({grown:.0f} MiB more)")
        except Exception as error:  # each test is told of, whatever another does
            failed += 1
            print(f"FAILED {test.__name__}: {type(error).__name__}: {error}")
print(f"{len(tests) - failed} passed, {failed} failed")
sys.exit(1 if failed else 0)
