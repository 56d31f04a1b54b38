"""A server on a fresh directory for as long as a `with` block: its address and the token of its `serve.json`."""

import json
import os
import subprocess
import sys
import tempfile


class Served:
    def __init__(self, *more):
        self.more = more

    def __enter__(self):
        self.dir = tempfile.TemporaryDirectory()
        binary = os.environ.get("EVERWHEN", "target/debug/everwhen")
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--data", self.dir.name, "--json", *self.more]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        ready = json.loads(self.process.stdout.readline())
        self.url = ready["url"].rstrip("/")
        self.address = self.url.split("://")[1]
        with open(os.path.join(self.dir.name, "serve.json")) as file:
            self.token = json.load(file)["token"]
        return self

    def __exit__(self, *_):
        self.process.terminate()
        code = self.process.wait(30)
        self.dir.cleanup()
        assert code == 0, f"the server ended with {code}"


def tried(names):
    """Runs every `test_…` of these names on one server, says how each went, and ends the program."""
    tests = [value for name, value in sorted(names.items()) if name.startswith("test_")]
    failed = 0
    with Served() as server:
        for test in tests:
            try:
                test(server)
                print(f"ok     {test.__name__}")
            except Exception as error:  # each test is told of, whatever another does
                failed += 1
                print(f"FAILED {test.__name__}: {type(error).__name__}: {str(error)[:500]}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
