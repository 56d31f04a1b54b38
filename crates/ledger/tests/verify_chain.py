#!/usr/bin/env python3
"""Checks a ledger directory with nothing but the standard library: positions, chain, bodies. Usage: verify_chain.py DIR"""
import hashlib
import json
import pathlib
import sys


def raw_bodies(tail: str) -> list[str]:
    """The texts of the bodies as they stand; `tail` is what follows `"b":[`."""
    found, decoder = [], json.JSONDecoder()
    while not tail.startswith("]"):
        _, end = decoder.raw_decode(tail)
        found.append(tail[:end])
        tail = tail[end:].removeprefix(",")
    return found


def main(directory: str) -> None:
    chain, due, records, trimmed = None, None, 0, None
    starts = {}
    for path in sorted(pathlib.Path(directory).glob("*.jsonl")):
        first = int(path.stem)
        due = due or first
        assert first == due, f"{path}: begins at {first}, {due} was due"
        starts[first] = chain
        for raw in path.read_bytes().split(b"\n"):
            if not raw:
                continue
            line, covered = json.loads(raw), raw[: raw.index(b',"chain":')]
            assert line["p"] == due, f"{path}: {line['p']} where {due} was due"
            if chain is None and due > 1:
                before_first = (covered, line["chain"])
            else:
                prev = chain or bytes(32)
                assert hashlib.sha256(prev + covered).hexdigest() == line["chain"], f"{path}: chain at {due}"
            chain = bytes.fromhex(line["chain"])
            digests = [record["x"] for record in line["r"] if "x" in record]
            texts = raw_bodies(raw[len(covered) :].decode().split('"b":[', 1)[1])
            assert len(texts) == len(digests) == len(line["b"]), f"{path}: bodies at {due}"
            for digest, text, body in zip(digests, texts, line["b"]):
                if body != "erased":
                    salt, data = bytes.fromhex(body["s"]), text[text.index(',"p":') + 5 : -1]
                    assert hashlib.sha256(salt + data.encode()).hexdigest() == digest, f"{path}: body at {due}"
            trimmed = next((r["d"] for r in reversed(line["r"]) if r["k"] == "ledger.trimmed"), trimmed)
            due += len(line["r"])
            records += len(line["r"])
    if starts and min(starts) > 1:
        assert trimmed and trimmed["first"] >= min(starts), "nothing says why the start is missing"
        if trimmed["first"] == min(starts):
            covered, want = before_first
            assert hashlib.sha256(bytes.fromhex(trimmed["before"]) + covered).hexdigest() == want, "chain before the start"
    print(json.dumps({"records": records, "head": (chain or bytes(32)).hex()}))


main(sys.argv[1])
