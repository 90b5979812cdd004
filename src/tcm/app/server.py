"""The server: an address, the runs, and a loop that ends when all requests are answered."""

import errno
import ipaddress
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from tcm.app.api import build_app
from tcm.app.guard import Access, Guard
from tcm.app.runs import open_runs
from tcm.errors import InputError, printable

SHORTEST_TOKEN = 16  # letters
CONCURRENT = 100  # requests at once; more are refused with 503
LAST_SECONDS = 30  # that a request may take after the server was asked to stop


@dataclass(frozen=True)
class ServerConfig:
    """Where the server listens, and who may use it."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None  # None: none on a loopback address, elsewhere a new one
    device: str = "auto"
    sample: int = 100  # images of a new audit

    @property
    def is_local(self) -> bool:
        """Whether the host is a loopback address."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def access(self) -> Access:
        """Who may ask. A server that others can reach has a token in any case."""
        if self.token is not None and (len(self.token) < SHORTEST_TOKEN or not self.token.isascii()):
            raise InputError("token", f"is too short or not ASCII; give {SHORTEST_TOKEN} letters or more")
        token = self.token or (None if self.is_local else secrets.token_urlsafe(24))
        return Access(token, self.is_local)


def serve(runs: Sequence[Path], config: ServerConfig, quiet: bool = False, say: Callable[[str], None] = print) -> None:
    """Serves the runs until Ctrl-C or SIGTERM. Requests that have begun are answered before it returns."""
    access = config.access()
    if config.sample < 1:
        raise InputError("sample", f"is {config.sample}; give 1 or more")
    with closing(bound_socket(config.host, config.port)) as listener:  # first: it fails at once, and models take long
        served = open_runs(runs, config.device, quiet)
        app = Guard(build_app(served, config.sample), access)
        for note in served.notes:
            say(note)
        say(address(listener, access))
        with signals_end_quietly():
            make_server(app).run(sockets=[listener])


def make_server(app: ASGIApp) -> uvicorn.Server:
    """The server, whose `run` takes the socket that it listens on."""
    options: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False, "ws": "none"}
    options |= {"limit_concurrency": CONCURRENT, "timeout_graceful_shutdown": LAST_SECONDS, "proxy_headers": False}
    return uvicorn.Server(uvicorn.Config(app, **options))


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at this address; port 0 is any free one."""
    if not 0 <= port <= 65535:
        raise InputError("port", f"is {port}; give 0 to 65535")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InputError("host", f"{printable(host)} is not an address of this computer; give 127.0.0.1") from error
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere this option lets two programs share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen()
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError("port", f"{port} is in use; give another one, or `port=0` for any free one") from error
        field = "host" if error.errno == errno.EADDRNOTAVAIL else "port"
        found = f"{printable(host)}:{port} cannot be used ({error.strerror})"
        raise InputError(field, f"{found}; give another one") from error
    return listener


def address(listener: socket.socket, access: Access) -> str:
    """The address of the page, with the token if there is one."""
    host, port = listener.getsockname()[:2]
    host = socket.gethostname() if ipaddress.ip_address(host).is_unspecified else host
    host = f"[{host}]" if ":" in host else host
    return f"http://{host}:{port}/" + (f"?token={access.token}" if access.token else "")


@contextmanager
def signals_end_quietly() -> Iterator[None]:
    """Inside, a signal that the server has obeyed has no other effect: uvicorn sends it again when it is done."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        sys.stdout.flush()
        for number, handler in previous.items():
            signal.signal(number, handler)
