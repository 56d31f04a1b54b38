"""A server on a fresh directory for as long as a `with` block: its address and the token of its `serve.json`."""

import json
import os
import subprocess
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
