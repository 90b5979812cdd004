"""What stands before every address of the server: who may ask, how much may be sent, and headers for the browser."""

import asyncio
import hmac
import re
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tcm.app.uploads import MAX_BYTES

COOKIE = "tcm_app_token"
OPEN_TO_ALL = ("/health",)  # it says nothing about models or images
UPLOADS = ("/predict", "/explain")
SMALL_BODY = 10_000  # bytes of a request that uploads nothing
HEADER_BYTES = 16_000  # of all headers of a request together
BODY_SECONDS = 20.0  # how long the server waits for the next part of a body
LOCAL_HOST = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", flags=re.IGNORECASE)
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Access(NamedTuple):
    """Who may ask: without a token everybody on this computer, with a token who knows it."""

    token: str | None
    local: bool  # whether the server listens on a loopback address only


class Guard:
    """An ASGI application in front of another one. What it refuses, the other one never sees."""

    def __init__(self, app: ASGIApp, access: Access):
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or hands it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            answer = self.refusal(scope) or self.login(scope)
            await (answer or self.app)(scope, limited(scope, receive), with_headers(send))
        # There are no web sockets. Without an answer the server closes the connection.

    def refusal(self, scope: Scope) -> Response | None:
        """Why the request is refused; None if it is not."""
        headers, path = Headers(scope=scope), scope["path"]
        if len(headers.getlist("host")) != 1:
            return _refused(400, "the request has no Host header, or several")
        if sum(len(name) + len(value) for name, value in headers.raw) > HEADER_BYTES:
            return _refused(431, f"the headers are too long; send at most {HEADER_BYTES} bytes")
        # A page of another site whose name leads to this computer (DNS rebinding) names its own host.
        if self.access.local and not LOCAL_HOST.fullmatch(headers["host"]):
            return _refused(421, "this server is for 127.0.0.1 and localhost only; give another --host to tcm app")
        if scope["method"] not in ("GET", "HEAD", "OPTIONS") and is_foreign(headers):
            return _refused(403, "the request comes from a page of another site")
        if _body_length(headers) > body_limit(path):
            return _refused(413, f"the request is too large; send at most {body_limit(path)} bytes")
        if self.access.token is not None and path not in OPEN_TO_ALL and not self.is_known(scope, headers):
            return _refused(401, "open the address with the token that tcm app printed, or send Authorization: Bearer")
        return None

    def is_known(self, scope: Scope, headers: Headers) -> bool:
        """Whether the request has the token: as a header, as a cookie, or in the address of the page."""
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        given = [bearer.strip()] if kind.lower() == "bearer" else []
        given += [value for key, value in cookie_parser(headers.get("cookie", "")).items() if key == COOKIE]
        given += _token_of_page(scope)
        return any(hmac.compare_digest(one.encode(), (self.access.token or "").encode()) for one in given)

    def login(self, scope: Scope) -> Response | None:
        """Moves the token from the address into a cookie; None if it is not there. The token is right already."""
        if self.access.token is None or not _token_of_page(scope):
            return None
        answer = RedirectResponse("/", status_code=303)
        # Lax: the redirect itself must bring the cookie. Requests that change something have their own check.
        answer.set_cookie(COOKIE, self.access.token, httponly=True, samesite="lax")
        return answer


def is_foreign(headers: Headers) -> bool:
    """Whether a browser says that a page of another site sends the request. Other programs say nothing."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    try:
        return origin is not None and urlsplit(origin).netloc.lower() != headers["host"].lower()
    except ValueError:
        return True


def body_limit(path: str) -> int:
    """The most bytes that may be sent to this address."""
    return MAX_BYTES if path in UPLOADS else SMALL_BODY


def limited(scope: Scope, receive: Receive) -> Receive:
    """`receive`, which refuses a body that is too long or comes too slowly."""
    received, complete = 0, False

    async def limited_receive() -> Message:
        nonlocal received, complete
        if complete:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), BODY_SECONDS)
        except TimeoutError as error:
            raise HTTPException(408, "the request did not arrive in time") from error
        received += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        if received > body_limit(scope["path"]):
            raise HTTPException(413, f"the request is too large; send at most {body_limit(scope['path'])} bytes")
        return message

    return limited_receive


def with_headers(send: Send) -> Send:
    """`send`, which adds HEADERS to every response."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers


def _refused(status: int, reason: str) -> Response:
    return JSONResponse({"detail": reason}, status)


def _body_length(headers: Headers) -> int:
    given = headers.get("content-length", "0")
    return int(given) if given.isdecimal() and len(given) < 20 else MAX_BYTES + 1


def _token_of_page(scope: Scope) -> list[str]:
    if scope["path"] != "/" or scope["method"] != "GET":
        return []
    return parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
