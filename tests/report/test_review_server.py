"""somnet review: pages served to this machine alone, and decisions that are in a file at once."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from somnet.data.decisions import Decision, read_decisions
from somnet.errors import RunError
from somnet.report.review_server import ReviewServer
from somnet.report.site import is_current, write_report
from somnet.runs.run import Run
from tests.report.conftest import HOSTILE, made_up_run, patient
from tests.report.test_site import expect_decisions, shown_rows

NAMES = ["a/constructor", "__proto__", HOSTILE, "=cmd()", "e.jpg", "f.jpg"]


@pytest.fixture
def made(tmp_path: Path) -> Run:
    return made_up_run(tmp_path / "run", [(name, "xyz"[place % 3]) for place, name in enumerate(NAMES)])


@contextlib.contextmanager
def serving(run: Run) -> Iterator[ReviewServer]:
    with ReviewServer(run) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


Answer = tuple[int, str, dict[str, str]]


@pytest.fixture
def server(made: Run) -> Iterator[ReviewServer]:
    with serving(made) as started:
        yield started


@pytest.fixture
def ask(server: ReviewServer) -> Callable[..., Answer]:
    port = int(server.server_address[1])

    def send(path: str, content: Any = None, *, token: str | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        host = f"127.0.0.1:{port}"
        sent = {"Host": host} | (
            {} if content is None else {"Origin": f"http://{host}", "Content-Type": "application/json"}
        )
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        body = content if content is None or isinstance(content, bytes) else json.dumps(content).encode()
        method = "GET" if content is None else "POST"
        connection.putrequest(method, f"/{server.token if token is None else token}/{path}", skip_host=True)
        for name, value in sent.items():
            if value:
                connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        connection.close()
        return answer.status, text, {name.lower(): value for name, value in answer.getheaders()}

    return send


def test_pages_and_decisions_are_served_with_a_strict_policy(ask: Callable[..., Answer], made: Run) -> None:
    status, text, headers = ask("index.html")
    assert status == 200
    assert "6 images in 3 classes" in text
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert "access-control-allow-origin" not in headers
    assert ask("data/store.js")[1].startswith('somnet.data("store", {"served":true')
    assert '"served":false' in (made.path / "report" / "data" / "store.js").read_text()  # the report stays as it is
    assert json.loads(ask("api/decisions")[1]) == {"version": 0, "canUndo": False, "decisions": []}
    assert json.loads(ask("api/decisions", [[1, "d"], [3, "r0"]])[1]) == {"version": 1, "canUndo": True}
    assert read_decisions(made.path / "decisions.csv") == {
        "__proto__": Decision("drop"),
        "=cmd()": Decision("relabel", "x"),
    }
    assert json.loads(ask("api/decisions?since=1")[1]) == {"version": 1, "canUndo": True}
    assert json.loads(ask("api/undo", {})[1])["changes"] == [[1, None], [3, None]]


def test_strangers_are_refused(ask: Callable[..., Answer], server: ReviewServer, made: Run) -> None:
    port = server.server_address[1]
    change = [[0, "d"]]
    for token in ("", "x", server.token[:-1], server.token + "x", "%00", "%C3%A9"):
        assert ask("index.html", token=token)[0] == 403
        assert ask("api/decisions", change, token=token)[0] == 403
    for host in (
        "evil.example",
        f"evil.example:{port}",
        f"127.0.0.1.evil.example:{port}",
        f"0.0.0.0:{port}",
        "x@127.0.0.1",
    ):
        assert ask("index.html", Host=host)[0] == 403  # another name that leads here
        assert ask("api/decisions", change, Host=host, Origin=f"http://{host}")[0] == 403
    assert ask("index.html", Host=f"localhost:{port}")[0] == 200
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{port}", f"http://127.0.0.1:{int(port) + 1}", ""):
        assert ask("api/decisions", change, Origin=origin)[0] == 403
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert ask("api/decisions", change, Content_Type=kind)[0] == 415  # what a form of another site can send
    assert ask("index.html", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors")[0] == 403
    assert ask("data/run.js", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="no-cors")[0] == 403
    assert ask("index.html", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200  # a link to it
    assert not (made.path / "decisions.csv").exists()


def test_nothing_outside_the_report_is_served(ask: Callable[..., Answer], made: Run, tmp_path: Path) -> None:
    report = made.path / "report"
    (tmp_path / "secret.js").write_text("secret")
    (report / "notes.txt").write_text("secret")
    (report / "link.js").symlink_to(tmp_path / "secret.js")
    (report / "folder").symlink_to(tmp_path)
    os.mkfifo(report / "pipe.js")
    (report / "data.js").mkdir()
    asked = [
        "../config.toml",
        "../../secret.js",
        "..%2f..%2fsecret.js",
        "%2e%2e/%2e%2e/secret.js",
        "data/../../data.json",
    ]
    asked += [
        "link.js",
        "folder/secret.js",
        "notes.txt",
        "pipe.js",
        "data.js",
        "data/",
        "/etc/passwd",
        "//etc/passwd.js",
    ]
    asked += [
        f"/{tmp_path}/secret.js",
        "..\\..\\secret.js",
        "a%00.js",
        "%ff.js",
        "x" * 5000 + ".js",
        "CON.js",
        "%",
        "./index.html",
    ]
    for path in asked:
        status, text, _ = ask(path)
        assert (status, "secret" in text) == (404, False), path


def test_what_is_no_decision_is_refused(ask: Callable[..., Answer], made: Run) -> None:
    bad: list[Any] = [
        b"{",
        b"\xff",
        b"[" * 100_000,
        {},
        None,
        "k",
        [[0]],
        [["k", 0]],
        [[0, "k"], [99, "k"]],
        [[0, "r9"]],
        [[0, {}]],
    ]
    for content in bad:
        assert ask("api/decisions", content if content is not None else b"null")[0] in (400, 409)
    assert ask("api/decisions", b"[]", Transfer_Encoding="chunked")[0] == 200
    assert ask("api/elsewhere", [])[0] == 404
    assert not (made.path / "decisions.csv").exists() or read_decisions(made.path / "decisions.csv") == {}


def test_a_huge_request_is_not_read(server: ReviewServer) -> None:
    with socket.create_connection(("127.0.0.1", int(server.server_address[1])), timeout=120) as line:
        host = f"127.0.0.1:{server.server_address[1]}"
        head = f"POST /{server.token}/api/decisions HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
        line.sendall((head + "Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n").encode())
        assert b" 413 " in line.recv(1000)


def test_an_old_report_is_written_again_and_a_new_one_is_not(made: Run) -> None:
    assert not is_current(made)
    write_report(made)
    assert is_current(made)
    before = (made.path / "report" / "index.html").stat().st_mtime_ns
    ReviewServer(made).server_close()
    assert (made.path / "report" / "index.html").stat().st_mtime_ns == before
    later = (made.path / "report" / "data" / "run.js").stat().st_mtime + 10
    os.utime(made.path / "issues.parquet", (later, later))
    assert not is_current(made)


def test_a_report_that_is_a_link_elsewhere_is_refused(made: Run, tmp_path: Path) -> None:
    shutil.move(write_report(made).parent, tmp_path / "elsewhere")
    (made.path / "report").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="leads out of the run"):
        ReviewServer(made)


def test_a_port_that_is_taken_is_one_clear_error(server: ReviewServer, made: Run) -> None:
    with pytest.raises(RunError, match="give another --port"):
        ReviewServer(made, int(server.server_address[1]))


def test_two_tabs_and_the_file_agree(chromium: Browser, server: ReviewServer, made: Run) -> None:
    file = made.path / "decisions.csv"
    context = patient(chromium.new_context())
    first, second = context.new_page(), context.new_page()
    complaints: list[str] = []
    for page in (first, second):
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(server.address.replace("index.html", "list.html#kind=all"))
        page.wait_for_selector("html[data-ready]")
    rows = shown_rows(first)
    first.bring_to_front()
    first.keyboard.press("ArrowRight")
    first.keyboard.press("d")
    first.keyboard.press("k")
    expect(second.locator("#sheet .tile[data-decision='k']")).to_have_count(1)
    wanted = {str(rows[0]): "d", str(rows[1]): "k"}
    for page in (first, second):
        expect_decisions(page, wanted)
    assert read_decisions(file) == {NAMES[rows[0]]: Decision("drop"), NAMES[rows[1]]: Decision("keep")}
    second.bring_to_front()
    second.keyboard.press("u")  # what the other tab did
    expect(first.locator("#sheet .tile[data-decision='k']")).to_have_count(0)
    assert read_decisions(file) == {NAMES[rows[0]]: Decision("drop")}
    first.reload()
    first.wait_for_selector("html[data-ready]")
    expect_decisions(first, {str(rows[0]): "d"})
    first.goto(server.address.replace("index.html", "decisions.html"))
    expect(first.locator("#kept-in-file")).to_contain_text(str(file))
    assert complaints == []
    file.write_text("file_name,decision\nnobody.jpg,keep\n")
    second.keyboard.press("ArrowRight")
    second.keyboard.press("d")
    expect(second.locator("#note")).to_contain_text("nobody.jpg")  # and not overwritten
    assert "nobody.jpg" in file.read_text()
    context.close()


def test_the_command_serves_until_it_is_stopped(made: Run, tmp_path: Path) -> None:
    """Also in the background of a shell, where SIGINT is set to be ignored. The next round knows the last one."""
    run = shutil.copytree(made.path, tmp_path / "second")
    (run / "decisions-used.csv").write_text("file_name,decision,label\n")
    command = ["sh", "-c", 'trap "" INT; exec "$0" -m somnet review "$1"', sys.executable, str(run)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    found = next(
        match for line in lines if (match := re.search(r"http://127\.0\.0\.1:(\d+)/([\w-]{32})/index.html", line))
    )
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=120)
    connection.request("GET", f"/{found[2]}/index.html")
    assert connection.getresponse().status == 200
    connection.close()
    process.send_signal(signal.SIGINT)
    rounds = f"--decisions {run / 'decisions-used.csv'} --decisions {run / 'decisions.csv'} --out NEW"
    assert rounds in process.communicate(timeout=120)[0]
    assert process.returncode == 0
