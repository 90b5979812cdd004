"""Requests that no friend sends, byte by byte to a real socket: each is refused with a reason, and nothing changes."""

import base64
import gzip
import io
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image, PngImagePlugin
from support.mistakes import bomb_content, contents
from support.serving import BOUNDARY, exchange, labelled, live_server, request, upload

from tcm.app.api import build_app
from tcm.app.guard import HEADERS, SMALL_BODY, Access, Guard
from tcm.app.runs import ServedRuns
from tcm.app.uploads import MAX_BYTES, MAX_IMAGES

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
LABEL = {"number": 0, "label": "cup"}
FOREIGN = {"Origin": "http://evil.example"}


def image(kind: str = "PNG", side: int = 8, **settings: Any) -> bytes:
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    Image.fromarray(noise).save(buffer, kind, **settings)
    return buffer.getvalue()


def text_bomb() -> bytes:
    """A PNG whose text unpacks to 5 MB."""
    text = b"k\0\0" + zlib.compress(b"a" * 5_000_000)
    chunk = struct.pack(">I", len(text)) + b"zTXt" + text + struct.pack(">I", zlib.crc32(b"zTXt" + text))
    whole = image()
    return whole[:33] + chunk + whole[33:]  # behind the header


def many(count: int) -> bytes:
    part = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="images"; filename="x.png"\r\n\r\n'.encode()
    body = b"".join(part + image() + b"\r\n" for _ in range(count)) + f"--{BOUNDARY}--\r\n".encode()
    return request("POST", "/predict", body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"})


def chunked(path: str, size: int) -> bytes:
    """A body of unknown length."""
    kind = {"Transfer-Encoding": "chunked", "Content-Type": "application/json"}
    return request("PUT", path, headers=kind) + f"{size:x}\r\n".encode() + b"1" * size + b"\r\n0\r\n\r\n"


class Hostile(NamedTuple):
    """A request and the status codes that refuse it."""

    name: str
    data: Callable[[], bytes]
    status: tuple[int, ...]

    def __str__(self) -> str:
        return self.name


def get(name: str, path: str, *status: int, **headers: str) -> Hostile:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Hostile(name, lambda: request("GET", path, headers=named), status)


TABLE = (
    # Paths outside the given folders.
    get("parent folders", "/static/../../../../etc/passwd", 404),
    get("parent folders of the root", "/../../etc/passwd", 404),
    get("encoded parent folders", "/static/%2e%2e%2f%2e%2e%2fapi.py", 404),
    get("doubly encoded parent folders", "/static/%252e%252e%252fapi.py", 404),
    get("backslashes", "/static/..%5c..%5capi.py", 404),
    get("an absolute path", "/static/%2fetc%2fpasswd", 404),
    get("a null byte", "/static/style.css%00.html", 404),
    get("a program file", "/static/..%2f__init__.py", 404),
    get("the folder of the page", "/static/", 404, 405),
    get("an image by its path", "/target/..%2f..%2fetc%2fpasswd/image", 404, 422),
    get("an image by a word", "/target/cup/image", 422),
    get("a negative number", "/target/-1/image", 422),
    get("a number beyond the last", "/target/18/image", 404),
    get("a number of 4,000 digits", f"/target/{'9' * 4000}", 422),
    get("a count beyond the limit", "/target?count=100000", 422),
    get("another model", "/target?model=2", 422),
    get("an unknown order", "/target?order=__class__", 422),
    # Other hosts and other sites.
    get("DNS rebinding", "/info", 421, Host="evil.example"),
    get("a host that looks local", "/info", 421, Host="127.0.0.1.evil.example"),
    get("a host behind a user's name", "/info", 421, Host="localhost@evil.example"),
    get("a host with a port that is none", "/info", 400, 421, Host="localhost:80:80"),
    Hostile("no host", lambda: b"GET /info HTTP/1.1\r\nConnection: close\r\n\r\n", (400,)),
    Hostile(
        "two hosts", lambda: b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nConnection: close\r\n\r\n", (400,)
    ),
    Hostile("a label by another site", lambda: labelled("/audit", LABEL, FOREIGN), (403,)),
    Hostile("a label by a frame without origin", lambda: labelled("/labels", LABEL, {"Origin": "null"}), (403,)),
    Hostile("a label by a link", lambda: labelled("/labels", LABEL, {"Sec-Fetch-Site": "cross-site"}), (403,)),
    Hostile("an upload by another site", lambda: upload(image(), headers=FOREIGN), (403,)),
    # Uploads.
    Hostile("SVG", lambda: upload(SVG, name="x.svg"), (415,)),
    Hostile("SVG that is called PNG", lambda: upload(SVG), (415,)),
    Hostile("HTML", lambda: upload(b"<!doctype html><script>alert(1)</script>", name="x.html"), (415,)),
    Hostile("HTML before an image", lambda: upload(b"<html><!--" + image()), (415,)),
    Hostile("a PDF", lambda: upload(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", name="x.pdf"), (415,)),
    Hostile("PostScript, which Pillow would run", lambda: upload(b"%!PS-Adobe-3.0 EPSF-3.0\n"), (415,)),
    Hostile("a pickle", lambda: upload(b"\x80\x04cos\nsystem\n(S'id'\ntR."), (415,)),
    Hostile("an ICO, which the library does not read", lambda: upload(image("ICO"), name="x.ico"), (415,)),
    Hostile("a compressed image", lambda: upload(gzip.compress(image())), (415,)),
    Hostile("an empty file", lambda: upload(b""), (422,)),
    Hostile("half an image", lambda: upload(image(side=64)[:2000]), (422,)),
    Hostile("a bomb of 900 megapixels", lambda: upload(bomb_content(30_000)), (413,)),
    Hostile("a bomb just above the limit", lambda: upload(bomb_content(7_100)), (413,)),
    Hostile("a bomb of text", lambda: upload(text_bomb()), (422,)),
    Hostile("too many images", lambda: many(MAX_IMAGES + 1), (413,)),
    Hostile("a file in a field of another name", lambda: upload(image(), field="file"), (422,)),
    Hostile(
        "no boundary", lambda: request("POST", "/predict", b"x", {"Content-Type": "multipart/form-data"}), (400, 422)
    ),
    Hostile("a request of 21 MB", lambda: upload(b"\x89PNG" + b"\0" * MAX_BYTES), (413,)),
    Hostile(
        "a length that is no number", lambda: request("POST", "/predict", b"x", {"Content-Length": "-1"}), (400, 413)
    ),
    # Labels.
    Hostile("a long label", lambda: labelled("/labels", {"number": 0, "label": "x" * 2000}), (422,)),
    Hostile("a large body of a label", lambda: labelled("/labels", b" " * (SMALL_BODY + 1)), (413,)),
    Hostile("a large body without a length", lambda: chunked("/labels", SMALL_BODY + 1), (413,)),
    Hostile("a class that is none", lambda: labelled("/labels", {"number": 0, "label": "../cup"}), (422,)),
    Hostile("a formula as a label", lambda: labelled("/audit", {"number": 0, "label": "=cmd()"}), (422,)),
    Hostile("a label of no image", lambda: labelled("/labels", {"number": 10**12, "label": "cup"}), (422,)),
    Hostile("a label outside the sample", lambda: labelled("/audit", {"number": 99, "label": "cup"}), (404,)),
    Hostile("JSON of great depth", lambda: labelled("/labels", b"[" * 9000), (400, 422)),
    Hostile("JSON that is none", lambda: labelled("/labels", b'{"number": NaN'), (422,)),
    Hostile("a label as a form", lambda: labelled("/labels", LABEL, {"Content-Type": "text/plain"}), (422,)),
    # The protocol.
    Hostile("another method", lambda: request("DELETE", "/labels"), (405,)),
    Hostile("TRACE", lambda: request("TRACE", "/info"), (405,)),
    Hostile("a header of 20 kB", lambda: request("GET", "/", headers={"X": "x" * 20_000}), (431,)),
    Hostile("two lengths", lambda: smuggled(), (400,)),
    Hostile("no HTTP", lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", (400,)),
)


def smuggled() -> bytes:
    """A request inside another one, for a server that takes the second length."""
    return b"PUT /labels HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nContent-Length: 99\r\n\r\nabcdGET /info"


@pytest.fixture(scope="module")
def port(served: ServedRuns) -> Iterator[int]:
    """One server for the whole table: no request may harm it."""
    with live_server(Guard(build_app(served, sample=5), Access(token=None, local=True))) as opened:
        yield opened


def test_there_are_enough_of_them():
    assert len(TABLE) >= 40
    assert len({hostile.name for hostile in TABLE}) == len(TABLE)


@pytest.mark.parametrize("hostile", TABLE, ids=str)
def test_a_hostile_request_is_refused_and_changes_nothing(port: int, places: Any, hostile: Hostile):
    before = contents(places.erm, places.tcm)
    found = exchange(port, hostile.data())
    assert found.status in hostile.status, found.body
    for secret in (b"root:", b"Traceback", b'File "', b"<script"):
        assert secret not in found.body
    if "application/json" in found.headers.get("content-type", ""):
        assert found.json["detail"]
        assert {name.lower() for name in HEADERS} <= found.headers.keys()
    assert contents(places.erm, places.tcm) == before
    assert exchange(port, request("GET", "/health")).status == 200


def commented() -> PngImagePlugin.PngInfo:
    info = PngImagePlugin.PngInfo()
    info.add_text("x", "<script>alert(1)</script>")
    return info


TWO_KINDS = {
    "PNG and SVG": image() + SVG,
    "GIF and JavaScript": image("GIF") + b"/*<script>alert(1)</script>*/",
    "JPEG and PHP": image("JPEG", comment=b"<?php system('id'); ?><script>alert(1)</script>"),
    "PNG with text": image(pnginfo=commented()),
}


@pytest.mark.parametrize("kind", TWO_KINDS)
def test_of_a_file_of_two_kinds_only_the_pixels_come_back(port: int, kind: str):
    assert b"alert(1)" in TWO_KINDS[kind]
    found = exchange(port, upload(TWO_KINDS[kind], "/explain", "image"))
    assert found.status == 200
    assert found.headers["content-type"] == "application/json"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert b"alert(1)" not in found.body
    for uri in re.findall(rb"data:image/[a-z]+;base64,([A-Za-z0-9+/=]+)", found.body):
        returned = base64.b64decode(uri)
        assert b"alert(1)" not in returned
        assert not Image.open(io.BytesIO(returned)).info.keys() & {"x", "comment"}


def test_a_name_comes_back_as_text(port: int):
    found = exchange(port, upload(image(), "/explain", "image", name="<img src=x onerror=alert(1)>.png"))
    assert found.headers["content-type"] == "application/json"
    assert found.json["name"] == "<img src=x onerror=alert(1)>.png"
