"""The pages of a report served to this machine alone, with decisions that go to a file at once.

Whoever has the token may read the report and decide, nobody else: it is part of every address, and other sites can
neither guess it nor send requests that pass for the page's own.
"""

import hmac
import io
import json
import mimetypes
import os
import re
import secrets
import stat
import sys
import threading
from collections.abc import Callable
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from PIL import Image

from somnet.errors import RunError, SomnetError, UnreadableImage
from somnet.report.decision_file import DecisionFile
from somnet.report.figures.evidence_figure import evidence_overlay
from somnet.report.frame import POLICY, script_data
from somnet.report.originals import Original, Originals
from somnet.report.site import STORE, is_current, write_report
from somnet.runs.run import Run
from somnet.system.files import parse_json
from somnet.system.folders import DECISIONS, REPORT

HOSTS = ("127.0.0.1", "localhost")
KINDS = (".html", ".css", ".js", ".jpg", ".svg")  # all that a report consists of
HEAT_SIDE = 800  # pixels, of a heat map's longer side
QUALITY = 92
MOST_BYTES = 64_000_000  # of a request
HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class _Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ReviewServer(ThreadingHTTPServer):
    """The report of a run, on 127.0.0.1 alone; `with` closes it."""

    daemon_threads = True

    def __init__(self, run: Run, port: int = 0) -> None:
        self.pages = (run.path / REPORT).resolve()
        if not self.pages.is_relative_to(run.path.resolve()):
            raise RunError(f"{run.path / REPORT} is a link that leads out of the run: move it away")
        if not is_current(run):
            write_report(run)
        self.run, self.drawing = run, threading.Lock()
        names = run.scores()["file_name"].to_pylist()
        self.decisions = DecisionFile(run.path / DECISIONS, names, run.classes)
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            raise RunError(f"cannot listen on port {port} ({error}): give another --port, or none") from None

    def original(self, row: int) -> Image.Image:
        """An image of the data as it is, upright; one that was replaced since the training is not what was judged."""
        with self.drawing:
            source = self.originals[row] if row < len(self.originals) else None
        if source is None:
            raise UnreadableImage("it is not in the data any more")
        return source.read().image

    def evidence(self, row: int) -> Image.Image:
        """Where the evidence for its class is in an image, as `predict` draws it."""
        image, source = self.original(row), self.originals[row]
        image.thumbnail((HEAT_SIDE, HEAT_SIDE))
        with self.drawing:  # one at a time: the network takes all cores anyway
            found = next(self.run.predict([source.place if source else ""], top=1, evidence=True))
        if found.evidence is None:
            raise UnreadableImage(found.unreadable_reason or "its network tells nothing about places")
        return evidence_overlay(image, found.evidence, image.width, image.height)

    @cached_property
    def originals(self) -> list[Original | None]:
        """The images of the run; looked for when the first one is asked for."""
        return Originals(self.run).find(self.decisions.names)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that was closed while it was answered is no news."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def address(self) -> str:
        """Of the first page."""
        return f"http://127.0.0.1:{self.server_address[1]}/{self.token}/index.html"


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer
    protocol_version = "HTTP/1.1"
    timeout = 60  # a connection that says nothing is closed
    server_version, sys_version = "somnet", ""

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the console is the user's."""

    def _answer(self, act: Callable[[str], tuple[str, bytes]]) -> None:
        try:
            status, (kind, body) = HTTPStatus.OK, act(self._checked_path())
        except _Refused as refused:
            status, kind, body = refused.status, "text/plain; charset=utf-8", f"{refused}\n".encode()
        except SomnetError as error:
            status, kind, body = HTTPStatus.CONFLICT, "text/plain; charset=utf-8", f"{error.typed}\n".encode()
        if status is not HTTPStatus.OK:
            self.close_connection = True  # what was sent with it has not been read
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _checked_path(self) -> str:
        """What is asked for, behind the token; refused if another site asks, or somebody without the token."""
        host = self.headers.get("Host", "")
        if host.rpartition(":")[0] not in HOSTS and host not in HOSTS:  # another name that leads here
            raise _Refused(HTTPStatus.FORBIDDEN, "this server answers to 127.0.0.1 alone")
        site, mode = self.headers.get("Sec-Fetch-Site", "none"), self.headers.get("Sec-Fetch-Mode", "")
        if site not in ("none", "same-origin") and mode != "navigate":
            raise _Refused(HTTPStatus.FORBIDDEN, "other sites may not ask")
        if (origin := self.headers.get("Origin")) is not None and origin != f"http://{host}":
            raise _Refused(HTTPStatus.FORBIDDEN, "other sites may not ask")
        token, _, path = urlsplit(self.path).path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise _Refused(HTTPStatus.FORBIDDEN, "open the address that somnet review has printed")
        return path

    def _get(self, path: str) -> tuple[str, bytes]:
        if path == "api/decisions":
            return self._decisions()
        if path == f"data/{STORE}.js":
            here = {"served": True, "file": str(self.server.decisions.path)}
            return "text/javascript", script_data(STORE, here).encode("ascii")
        if match := re.fullmatch(r"(original|heat)/(\d{1,9})\.jpg", path, re.ASCII):
            return self._picture(match[1], int(match[2]))
        return self._file(unquote(path) or "index.html")

    def _picture(self, kind: str, row: int) -> tuple[str, bytes]:
        """Drawn anew: no byte of a file that may be anything reaches the browser."""
        try:
            image = self.server.original(row) if kind == "original" else self.server.evidence(row)
        except UnreadableImage as error:
            raise _Refused(HTTPStatus.NOT_FOUND, f"no picture: {error}") from None
        content = io.BytesIO()
        image.convert("RGB").save(content, "JPEG", quality=QUALITY)
        return "image/jpeg", content.getvalue()

    def _post(self, path: str) -> tuple[str, bytes]:
        if self.headers.get("Origin") is None:  # a browser always says where a request comes from
            raise _Refused(HTTPStatus.FORBIDDEN, "only the pages themselves may write")
        if self.headers.get_content_type() != "application/json":
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send JSON")
        body, decisions = self._body(), self.server.decisions
        if path == "api/undo":
            version, changes = decisions.undo()
            return _json({"version": version, "canUndo": decisions.can_undo, "changes": changes})
        if path != "api/decisions":
            raise _Refused(HTTPStatus.NOT_FOUND, "there is no such address")
        if not isinstance(body, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in body):
            raise _Refused(HTTPStatus.BAD_REQUEST, "send pairs of image and decision")
        version = decisions.change([(row, code) for row, code in body])
        return _json({"version": version, "canUndo": decisions.can_undo})

    def _body(self) -> Any:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdecimal() or int(length) > MOST_BYTES:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "say how long it is, and send less")
        try:
            return parse_json(self.rfile.read(int(length)).decode("utf-8"))
        except ValueError:
            raise _Refused(HTTPStatus.BAD_REQUEST, "send JSON") from None

    def _decisions(self) -> tuple[str, bytes]:
        decisions = self.server.decisions
        version, codes = decisions.codes()
        known = {"version": version, "canUndo": decisions.can_undo}
        if urlsplit(self.path).query == f"since={version}":
            return _json(known)
        return _json({**known, "decisions": list(codes.items())})

    def _file(self, path: str) -> tuple[str, bytes]:
        """A file of the report: nothing beside it, nothing that a link leads to, nothing of another kind."""
        missing = _Refused(HTTPStatus.NOT_FOUND, "the report has no such file")
        parts = path.split("/")
        if any(part in ("", ".", "..") or "\0" in part or os.sep in part for part in parts):
            raise missing
        file = self.server.pages.joinpath(*parts)
        try:
            if file.suffix not in KINDS or file.resolve() != file:
                raise missing
            descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb") as stream:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise missing
                return _KINDS[file.suffix], stream.read()
        except (OSError, ValueError):
            raise missing from None


def _json(value: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps(value).encode("utf-8")


_TYPES = mimetypes.MimeTypes()  # Python's own list, the same on every machine
_KINDS = {kind: str(_TYPES.guess_type("file" + kind)[0]) for kind in KINDS}
