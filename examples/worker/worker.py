#!/usr/bin/env python3
"""A worker in Python, with the standard library only: it does the `task` steps of automations.

    EVERWHEN_SERVER=http://127.0.0.1:3837 EVERWHEN_TOKEN=ew_... python3 worker.py [--once]

It polls for tasks of its kinds, says every ten seconds that it is still at one, and tells what became of it. A task may come
twice (a worker or the server died before the answer was recorded): its `idempotency_key` is the same each time, so keep what you
have done under it. Here that is a file per key.
"""
import http.client
import json
import os
import pathlib
import re
import sys
import threading
import time
import urllib.error
import urllib.request

SERVER = os.environ.get("EVERWHEN_SERVER", "http://127.0.0.1:3837")
TOKEN = os.environ.get("EVERWHEN_TOKEN")
DONE = pathlib.Path(os.environ.get("WORKER_DONE", "done"))


# A server that is away, or stops in the middle of an answer.
AWAY = (OSError, http.client.HTTPException)


class Stale(Exception):
    """The task is another worker's, or nobody's, by now."""


def tell(what, said, timeout=90):
    headers = {"content-type": "application/json"}
    if TOKEN:
        headers["authorization"] = f"Bearer {TOKEN}"
    request = urllib.request.Request(f"{SERVER}/v1/tasks/{what}", json.dumps(said).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        if refused.code == 409:
            raise Stale from None
        if refused.code == 429 or refused.code >= 500:
            raise OSError(f"{what}: {refused.code}") from None
        raise RuntimeError(f"{what}: {refused.code} {refused.read().decode()}") from None


def insist(what, said):
    """Tells it until it is heard. A server that was away knows the token no more: then the task is stale, and comes again."""
    while True:
        try:
            return tell(what, said)
        except AWAY as error:
            print(f"the server is away: {error}", file=sys.stderr)
            time.sleep(1)


def beat(token, over):
    while not over.wait(10):
        try:
            tell("heartbeat", {"token": token})
        except AWAY:
            continue
        except (Stale, RuntimeError):
            return


def render(data):
    if not isinstance(data.get("cents"), int):
        raise ValueError("an order has a price in cents")
    return {"text": f"order {data['order']}: {data['cents'] / 100:.2f}"}


KINDS = {"worker.render": render}


def work(task):
    kept = DONE / re.sub(r"[^\w.-]", "_", task["idempotency_key"])
    if kept.exists():
        return json.loads(kept.read_text())
    made = KINDS[task["kind"]](task["input"])
    DONE.mkdir(exist_ok=True)
    kept.with_suffix(".new").write_text(json.dumps(made))
    kept.with_suffix(".new").replace(kept)
    return made


def do(task):
    over = threading.Event()
    threading.Thread(target=beat, args=(task["token"], over), daemon=True).start()
    try:
        try:
            said = ("complete", {"token": task["token"], "output": work(task)})
        except (ValueError, KeyError) as error:  # It would end the same way each time.
            said = ("fail", {"token": task["token"], "error": str(error), "retryable": False})
        insist(*said)
    except Stale:
        print(f"{task['run']} {task['step']}: another has it", file=sys.stderr)
    finally:
        over.set()


def main():
    once = "--once" in sys.argv
    while True:
        try:
            tasks = tell("poll", {"kinds": list(KINDS), "max": 1, "wait": "20s"})["tasks"]
        except AWAY as error:
            print(f"the server is away: {error}", file=sys.stderr)
            time.sleep(1)
            continue
        for task in tasks:
            do(task)
        if once and tasks:
            return


if __name__ == "__main__":
    main()
