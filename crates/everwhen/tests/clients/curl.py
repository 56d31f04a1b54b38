"""curl as the README shows it, and as people use it: tokens, HTTP/2, conditions, keys, exit codes."""

import json
import re
import shlex
import subprocess
from pathlib import Path

from served import tried

README = Path(__file__).parents[4] / "README.md"


def curl(server, *args):
    """What it printed, and its exit code."""
    bearer = f"Authorization: Bearer {server.token}"
    command = ["curl", "-sS", "--max-time", "20", "-H", bearer, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return done.stdout, done.returncode


def shown(server):
    """The README's lines, with the address of this server."""
    lines = re.findall(r"^curl (.*)$", README.read_text(), re.MULTILINE)
    assert len(lines) >= 2, "the README shows how to publish and how to follow"
    return [[word.replace("localhost:3837", server.address) for word in shlex.split(line)] for line in lines]


def test_what_the_readme_shows(server):
    publish, follow = shown(server)[:2]
    said, code = curl(server, *publish)
    position = json.loads(said)["position"]
    assert code == 0 and position > 0, said
    bearer = f"Authorization: Bearer {server.token}"
    stream = subprocess.Popen(["curl", "-sS", "--max-time", "20", "-H", bearer, *follow], stdout=subprocess.PIPE, text=True)
    try:
        assert any(line == f"id: {position}\n" for line in stream.stdout), "the stream ended without it"
    finally:
        stream.kill()
        stream.wait()


def test_http_2_and_a_body_from_standard_input(server):
    said, _ = curl(server, "--http2-prior-knowledge", "-w", " %{http_version} %{response_code}", server.url + "/v1/events")
    assert said.endswith(" 2 200"), said
    lines = '{"topic":"lines.a"}\n{"topic":"lines.b"}\n'
    command = ["curl", "-sS", "-H", f"Authorization: Bearer {server.token}", "-H", "content-type: application/x-ndjson"]
    command += ["--data-binary", "@-", "-w", "%{response_code}", "-o", "/dev/null", server.url + "/v1/events"]
    assert subprocess.run(command, input=lines, capture_output=True, text=True, timeout=30).stdout == "200"
    listed, _ = curl(server, "-G", "--data-urlencode", "topic=lines.#", server.url + "/v1/events")
    assert [event["topic"] for event in json.loads(listed)["events"]] == ["lines.a", "lines.b"], listed


def test_a_large_body_waits_for_100_continue(server):
    body = json.dumps({"topic": "c.large", "payload": "x" * 500_000})
    command = ["curl", "-sS", "-H", f"Authorization: Bearer {server.token}", "-H", "content-type: application/json"]
    command += ["-H", "Expect: 100-continue", "-d", "@-", "-o", "/dev/null", "-w", "%{response_code}", server.url + "/v1/events"]
    assert subprocess.run(command, input=body, capture_output=True, text=True, timeout=30).stdout == "201"


def test_a_key_is_done_once(server):
    ask = ["-H", "content-type: application/json", "-H", "Idempotency-Key: k-1", "-d", '{"topic":"c.once"}', server.url + "/v1/events"]
    first, again = (json.loads(curl(server, *ask)[0]) for _ in range(2))
    assert first["position"] == again["position"], (first, again)


def test_refusals_are_exit_codes_for_scripts(server):
    said, code = curl(server, "--fail-with-body", server.url + "/v1/events/none")
    assert code == 22 and json.loads(said)["code"] == "event.not_found", (said, code)
    bare = subprocess.run(["curl", "-sS", server.url + "/v1/events"], capture_output=True, text=True, timeout=30)
    assert json.loads(bare.stdout)["code"] == "auth.required", bare.stdout


tried(globals())
