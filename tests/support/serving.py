"""A server of tiny runs in a thread, and requests byte by byte, as no well-behaved client sends them."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from starlette.types import ASGIApp

from tcm.app.server import bound_socket, make_server

BOUNDARY = "----boundary"


class Answered(NamedTuple):
    """A response, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@contextmanager
def live_server(app: ASGIApp) -> Iterator[int]:
    """The application behind a real socket; its port."""
    listener = bound_socket("127.0.0.1", 0)
    server = make_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


def request(method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    """The bytes of a request. A header of None in place of a usual one leaves it out."""
    usual: dict[str, str] = {"Host": "127.0.0.1", "Connection": "close"}
    if body:
        usual["Content-Length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in (usual | (headers or {})).items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def upload(
    data: bytes,
    path: str = "/predict",
    field: str = "images",
    name: str = "x.png",
    headers: dict[str, str] | None = None,
) -> bytes:
    """The bytes of a request that uploads a file."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n\r\n'
    body = head.encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode()
    kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return request("POST", path, body, kind | (headers or {}))


def labelled(path: str, value: Any, headers: dict[str, str] | None = None) -> bytes:
    """The bytes of a request that gives a label."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return request("PUT", path, body, {"Content-Type": "application/json"} | (headers or {}))


def exchange(port: int, data: bytes) -> Answered:
    """Sends the bytes and reads the whole response."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # it was refused before it was sent whole
            connection.sendall(data)
        return answered(connection)


def answered(connection: socket.socket) -> Answered:
    """What the server sends until it closes the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Answered(int(first.split()[1]), headers, body)
