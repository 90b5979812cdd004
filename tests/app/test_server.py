"""The server as a process: its address, its token, and an end at which nothing is lost."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from support.serving import answered, exchange, request

from tcm.app.api import build_app
from tcm.app.guard import COOKIE, Access, Guard
from tcm.app.runs import ServedRuns
from tcm.app.server import ServerConfig, address, bound_socket
from tcm.errors import InputError

TOKEN = "a-word-that-is-long-enough"


@pytest.fixture
def process(places: Any, no_labels: None) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`tcm app` on any free port, when it listens; the port."""
    words = [sys.executable, "-m", "tcm", "app", str(places.tcm), "--port", "0", "--device", "cpu"]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert started.stdout is not None
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\n", started.stdout.readline())
    assert found
    yield started, int(found[1])
    started.kill()
    started.communicate()


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGTERM")
def test_sigterm_loses_nothing(process: tuple[subprocess.Popen[str], int], places: Any):
    server, port = process
    state = exchange(port, request("GET", "/audit")).json
    # Requests whose bodies have arrived in part when the signal comes.
    connections = []
    for number in state["images"][:4]:
        body = json.dumps({"number": number, "label": "cup"}).encode()
        kind = {"Content-Type": "application/json"}
        data = request("PUT", "/audit", body, kind)
        connection = socket.create_connection(("127.0.0.1", port), timeout=30)
        connection.sendall(data[:-5])
        connections.append((connection, data[-5:]))
    assert exchange(port, request("GET", "/health")).status == 200  # so the server has read them
    server.send_signal(signal.SIGTERM)
    closed = False
    while not closed:  # no new request is taken any more
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            closed = True
    for connection, rest in connections:
        connection.sendall(rest)
        assert answered(connection).status == 200
        connection.close()
    said, complained = server.communicate(timeout=30)
    assert server.returncode == 0
    assert (said, complained) == ("", "stopped; all labels are on disk\n")
    assert Path(state["file"]).read_text().count(",cup\n") == 4
    assert not [*places.tcm.glob(".*.tmp")]


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("box", False)]
)
def test_who_can_be_reached_by_others_has_a_token(host: str, local: bool):
    first, second = (ServerConfig(host=host).access() for _ in range(2))
    assert first.local is local
    if local:
        assert first.token is None
    else:
        assert first.token != second.token
        assert len(first.token or "") >= 32
    assert ServerConfig(host=host, token=TOKEN).access().token == TOKEN


def test_a_short_token_is_refused():
    with pytest.raises(InputError, match="token"):
        ServerConfig(token="1234").access()


def test_the_address_has_the_token():
    with bound_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert address(listener, Access(None, True)) == f"http://127.0.0.1:{port}/"
        assert address(listener, Access(TOKEN, True)) == f"http://127.0.0.1:{port}/?token={TOKEN}"


@pytest.fixture
def guarded(served: ServedRuns) -> Iterator[TestClient]:
    """A server that other computers can reach."""
    app = Guard(build_app(served, sample=5), Access(TOKEN, local=False))
    with TestClient(app, base_url="http://box.example", follow_redirects=False) as client:
        yield client


def test_without_the_token_only_the_health_is_seen(guarded: TestClient):
    assert guarded.get("/health").json() == {"status": "ok"}
    for path in ("/", "/info", "/openapi.json", "/docs", "/static/main.js", "/target", "/target/0/image", "/audit"):
        found = guarded.get(path)
        assert found.status_code == 401, path
        assert "token" in found.json()["detail"]
    assert guarded.post("/predict").status_code == 401
    assert guarded.put("/audit", json={}).status_code == 401


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", "Bearer ü"])
def test_a_wrong_token_is_refused(guarded: TestClient, given: str):
    assert guarded.get("/info", headers=[(b"Authorization", given.encode("utf-8"))]).status_code == 401
    assert guarded.get("/", params={"token": given}).status_code == 401


def test_programs_send_the_token_as_a_header(guarded: TestClient):
    assert guarded.get("/info", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_a_browser_keeps_the_token_in_a_cookie(guarded: TestClient):
    found = guarded.get("/", params={"token": TOKEN})
    assert (found.status_code, found.headers["location"]) == (303, "/")
    cookie = found.headers["set-cookie"]
    assert all(word in cookie.lower() for word in (COOKIE, "httponly", "samesite=lax"))
    assert guarded.get("/info").status_code == 200  # the client has kept it
    assert guarded.get("/").status_code == 200
    assert guarded.get("/target?token=x").status_code == 200
    foreign = {"Origin": "http://evil.example"}
    assert guarded.put("/audit", json={"number": 0, "label": "cup"}, headers=foreign).status_code == 403


def test_a_body_that_does_not_arrive_is_given_up(live: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tcm.app.guard.BODY_SECONDS", 0.2)
    found = exchange(
        live, request("PUT", "/labels", headers={"Content-Length": "50", "Content-Type": "application/json"})
    )
    assert found.status == 408
