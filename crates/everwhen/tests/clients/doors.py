"""The doors as ordinary clients of PyPI meet them: HTTP, server-sent events, WebSocket, gRPC."""

import json
import queue
import sys
import urllib.request
from pathlib import Path

from websockets.sync.client import connect

from served import tried

sys.path.insert(0, str(Path(__file__).parents[4] / "proto"))


def http(server, method, path, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json", **headers}
    request = urllib.request.Request(server.url + path, data, headers, method=method)
    return urllib.request.urlopen(request, timeout=20)


def publish(server, topic, payload):
    return json.load(http(server, "POST", "/v1/events", {"topic": topic, "payload": payload}))["position"]


def test_http(server):
    position = publish(server, "price.changed", {"new": 9.5})
    event = json.load(http(server, "GET", f"/v1/events/{position}"))
    assert event["payload"] == {"new": 9.5}, event
    try:
        urllib.request.urlopen(server.url + "/v1/events", timeout=20)
        raise AssertionError("no token was asked for")
    except urllib.error.HTTPError as error:
        assert error.code == 401 and json.load(error)["code"] == "auth.required"


def test_server_sent_events(server):
    stream = http(server, "GET", "/v1/events/stream?topic=a.b")
    assert stream.readline() == b"event: ready\n"
    position = publish(server, "a.b", 1)
    lines = iter(stream.readline, b"")
    assert next(line for line in lines if line.startswith(b"id: ")) == f"id: {position}\n".encode()
    last = http(server, "GET", "/v1/events/stream?topic=a.b", **{"Last-Event-ID": str(position - 1)})
    assert any(line == f"id: {position}\n".encode() for line in iter(last.readline, b""))


def test_websocket(server):
    url = server.url.replace("http", "ws", 1) + "/v1/ws"
    for more in (
        {"additional_headers": {"Authorization": f"Bearer {server.token}"}},
        {"subprotocols": ["everwhen.v1", f"bearer.{server.token}"]},
    ):
        with connect(url, **more) as socket:
            subscribe = {"subscription_id": "s", "kind": 550, "filter": "ws.*"}
            socket.send(json.dumps({"message_id": "1", "payload": {"subscribe": subscribe}}))
            answer = json.loads(socket.recv(20))
            assert answer["message_id"] == "1" and answer["payload"]["ok"]["patterns"] == ["ws.*"], answer
            position = publish(server, "ws.said", {"n": 1})
            event = json.loads(socket.recv(20))["payload"]["event"]
            assert event["subscription_id"] == "s" and event["payload"]["position"] == position, event
            socket.send(json.dumps({"type": "list_inbox"}))
            assert json.loads(socket.recv(20))["code"] == "not_available"


def test_grpc(server):
    import grpc
    from google.protobuf.json_format import MessageToDict
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    protos, services = grpc.protos_and_services("everwhen/v1/everwhen.proto")
    bearer = (("authorization", f"Bearer {server.token}"),)
    with grpc.insecure_channel(server.address) as channel:
        assert health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20).status == 1
        stub = services.EverwhenServiceStub(channel)
        try:
            stub.Publish(protos.PublishRequest(topic="a.b"), timeout=20)
            raise AssertionError("no token was asked for")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAUTHENTICATED, error
        unknown = channel.unary_unary("/everwhen.v1.EverwhenService/Fly")
        try:
            unknown(b"", timeout=20, metadata=bearer)
            raise AssertionError("an unknown method was answered")
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
        http(server, "PUT", "/v1/groups/workers", {"pattern": "grpc.*"})

        said = queue.Queue()
        answers = stub.Session(iter(said.get, None), timeout=30, metadata=bearer)
        subscribe = protos.SubscribeMsg(subscription_id="s", kind=protos.SUBSCRIPTION_KIND_DOMAIN_EVENTS, filter="grpc.*")
        said.put(protos.SessionRequest(message_id="1", subscribe=subscribe))
        answer = next(answers)
        assert answer.message_id == "1" and answer.WhichOneof("payload") == "ok", answer
        request = protos.PublishRequest(topic="grpc.said", payload_json='{"n": 1.50, "big": 12345678901234567890}')
        published = stub.Publish(request, timeout=20, metadata=bearer)
        event = next(answers).event
        shown = MessageToDict(event.payload)
        assert event.subscription_id == "s" and shown["position"] == published.position, event
        assert shown["topic"] == "grpc.said" and shown["payload"]["n"] == 1.5, shown
        said.put(protos.SessionRequest(message_id="2", subscribe=subscribe))
        assert next(answers).error.code == "request.invalid"
        said.put(None)

        pulled = stub.Pull(protos.PullRequest(group="workers", max=10, wait_seconds=5), timeout=20, metadata=bearer)
        [delivery] = pulled.deliveries
        assert '"big": 12345678901234567890' in delivery.event.json, delivery.event.json
        acked = stub.Ack(protos.AckRequest(group="workers", tokens=[delivery.token, "none"], sync=True), timeout=20, metadata=bearer)
        assert acked.done == 1 and list(acked.stale) == ["none"], acked

        from google.protobuf.descriptor_pool import DescriptorPool
        from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

        database = ProtoReflectionDescriptorDatabase(channel)
        assert "everwhen.v1.EverwhenService" in database.get_services()
        service = DescriptorPool(database).FindServiceByName("everwhen.v1.EverwhenService")
        assert "Session" in service.methods_by_name


tried(globals())
