import http.client
import json
import random
import select
import socket
import string
import time
from base64 import b64encode
from urllib.parse import quote, urlencode

import pytest

from packages.view.tests.made import bound, indexed, make_run, record_of, write_held_out, write_step
from packages.view.tests.played import INJECTIONS
from slimrl.errors import UserError
from slimrl.io.http_access import Access
from slimrl_view import server as viewer_server
from slimrl_view.api import Api
from slimrl_view.lines import encodable
from slimrl_view.queries import Selection
from slimrl_view.server import bind

# What texts of models may hold that would be something else than text on a page or a terminal.
HOSTILE = (
    *INJECTIONS,
    "</script><script>alert(1)</script>",
    "\x1b]52;c;aGVsbG8=\x07\x7f\u2067\u2068\u200c\u2029paragraph\x85",
    "\ud800 half a pair \udfff",
    "'; DROP TABLE rollouts; --",
    "\\u003cscript\\u003e \\n \\",
)


def ask(port, target, method="GET", headers=None):
    """The status, the headers and the body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, target, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def get(port, path, **query):
    status, _, body = ask(port, f"{path}?{urlencode(query)}" if query else path)
    return status, json.loads(body)


@pytest.fixture
def run(tmp_path):
    return indexed(make_run(tmp_path / "run"))


@pytest.fixture
def port(run):
    with bound(run) as server:
        yield server.server_address[1]


ROWS = '[{"field": "reward", "op": ">", "value": 0.5}]'
STATE = {"id": "run", "metrics": 2, "rollouts": 8, "held_out": 2, "damaged": 0, "monitors": 0}
STATE |= {"indexing": None, "problem": ""}
ROW = {"key": "train:0:1", "group": "0/train/a", "reward": 1, "advantage": 0.5, "tool_calls": 0}


@pytest.mark.parametrize(
    ("path", "query", "found", "wanted"),
    [
        ("state", {}, lambda a: a["runs"], [STATE]),
        (
            "runs",
            {},
            lambda a: [a[0][name] for name in ("id", "algorithm", "step")],
            ["run", "grpo", 1],
        ),
        ("registry", {}, sorted, ["groups", "metrics", "panels"]),
        ("runs/run/metrics", {"since": 1}, dict, {"series": {"reward/mean": [[1, 0.75]]}, "last_step": 1}),
        ("runs/run/monitors", {}, dict, {"alarms": []}),
        ("runs/run/watched", {}, lambda a: {one["raised"] for one in a["monitors"]}, {False}),
        ("runs/run/files", {}, lambda a: a["train"], {"steps": [0, 1]}),
        (
            "runs/run/files",
            {},
            lambda a: a["held_out"][0],
            {"name": "start_greedy", "num": 1},
        ),
        ("runs/run/rollouts", {"where": ROWS, "facets": 1}, lambda a: (a["total"], a["matched"]), (8, 2)),
        ("runs/run/rollouts", {"where": ROWS, "facets": 1}, lambda a: a["facets"]["stop"], {"done": 2}),
        ("runs/run/rollouts", {"where": ROWS}, lambda a: {name: a["rows"][0][name] for name in ROW}, ROW),
        ("runs/run/groups", {"sort": "-std", "limit": 1}, lambda a: a["groups"][0]["rewards"], [0, 1]),
        ("runs/run/group", {"group": "0/train/a"}, lambda a: len(a["rows"]), 2),
        (
            "runs/run/rollout",
            {"key": "train:0:1"},
            lambda a: (a["messages"][1]["content"], a["tokens"]),
            ("wow 1 at 0", None),
        ),
        ("runs/run/task", {"task": "train/a"}, lambda a: len(a["rows"]), 4),
        (
            "held_out_pairs",
            {"left": "run/start_greedy", "right": "run/final_greedy"},
            lambda a: (a["better"], a["worse"], a["same"]),
            (1, 0, 0),
        ),
    ],
)
def test_every_route_answers(port, path, query, found, wanted):
    status, answer = get(port, f"/api/{path}", **query)
    assert (status, found(answer)) == (200, wanted)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/api/nothing", 404),
        ("/api/runs/other/metrics", 404),
        ("/api/runs/run/nothing", 404),
        ("/api/runs/run/rollout?key=train:9:9", 404),
        ("/api/runs/run/rollout", 400),
        ("/api/runs/run/group?group=x", 404),
        ("/api/runs/run/rollouts?where=%7B", 400),
        ("/api/runs/run/rollouts?sort=nothing", 400),
        ("/api/runs/run/rollouts?limit=-1", 400),
        ("/api/runs/run/rollouts?limit=1000000", 400),
        ("/api/runs/run/rollouts?offset=" + "9" * 40, 400),
        ("/api/runs/run/rollouts?file=held_out/none", 404),
        ("/api/runs/run/metrics?since=x", 400),
        ("/nothing", 404),
    ],
)  # fmt: skip
def test_a_wrong_question_is_answered_by_a_sentence(port, target, status):
    found, headers, body = ask(port, target)
    assert found == status
    assert headers["Content-Type"] == "application/json"
    error = json.loads(body)["error"]
    assert error[0] in string.ascii_uppercase + "`" and error.endswith(".")


@pytest.mark.slow
def test_no_query_gets_another_answer_than_data_or_a_sentence(port):
    rng = random.Random(5)
    routes = ["metrics", "files", "rollouts", "groups", "group", "rollout", "task"]
    names = ["where", "sort", "offset", "limit", "file", "key", "group", "task", "since", "facets"]
    odd = [
        *("", "-", "0", "-1", "1e9", "[]", "[1]", "{}", "null", "train:0:0", "held_out/", "metric.", "-metric.x"),
        *("\0", "é\ud800", '[{"field":"text","op":"has","value":""}]', '[{"field":"step","op":"<","value":1e999}]'),
        '[{"field":"metric.exact","op":">","value":NaN}]',
    ]
    for _ in range(400):
        query = {name: rng.choice(odd) for name in rng.sample(names, 3)}
        encoded = "&".join(f"{name}={quote_any(value)}" for name, value in query.items())
        status, _, body = ask(port, f"/api/runs/run/{rng.choice(routes)}?{encoded}")
        assert status in (200, 400, 404), (query, body)
        assert "error" in json.loads(body) or status == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/../server.py", "/..%2fserver.py", "/%2e%2e/server.py", "/static/../../server.py", "//etc/passwd"),
        *("/etc/passwd", "/index.html/../../server.py", "/..\\server.py", "/index.html%00.js", "/./index.html"),
        *("/config.toml", "/api/runs/..%2f..%2fetc/metrics", "/api/runs/run/../../../etc/passwd"),
        *("/api/runs/run%2f../metrics", "/api/runs/run/rollout?key=held_out/../config:0:0"),
        *("/api/runs/run/rollout?key=../../etc/passwd:0:0", "/api/runs/run/rollout?key=/etc/passwd:0:0"),
        "/api/runs/run/rollout?key=train:0:0/../../x",
        "/api/held_out_pairs?left=run/start_greedy&right=run/../config",
    ],
)
def test_no_path_and_no_key_leads_out(port, path):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:  # http.client would tidy some of them
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.0 404 ")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "localhost", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost", "Origin": "null"}, 403),
        ({"Host": "localhost:1", "Origin": "http://localhost:2"}, 403),
        ({"Host": "localhost:1", "Origin": "http://localhost:1"}, 200),
        ({"Host": "localhost"}, 200),
    ],
)
@pytest.mark.parametrize("target", ["/", "/api/runs", "/api/runs/run/rollouts"])
def test_the_own_page_is_answered_and_those_of_others_are_refused(port, target, headers, status):
    found, _, body = ask(port, target, headers=headers)
    assert found == status
    assert status == 200 or [*json.loads(body)] == ["error"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_only_get_and_head_are_answered(port, method):
    status, headers, body = ask(port, "/api/runs", method)
    assert status == 501 and headers["Connection"] == "close" and "error" in json.loads(body)


@pytest.mark.parametrize("target", ["/", "/api/runs", "/nothing"])
def test_head_is_get_without_a_body(port, target):
    got, had = ask(port, target), ask(port, target, "HEAD")
    assert (got[0], had[2], had[1]["Content-Length"]) == (had[0], b"", str(len(got[2])))


@pytest.mark.parametrize("target", ["/", "/api/runs", "/nothing"])
def test_every_answer_says_what_a_browser_may_do_with_it(port, target):
    headers = ask(port, target)[1]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'; script-src 'self';" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'; base-uri 'none'" in headers["Content-Security-Policy"]
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in headers


def test_what_is_too_large_is_refused_and_the_server_goes_on(port):
    for size in (70_000, 200_000):
        try:
            assert ask(port, "/api/runs?where=" + "a" * size)[0] == 414
        except ConnectionError:  # it has not read all that was sent
            assert size > 65536
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: b\r\n" % n for n in range(500)))
        assert b" 431 " in client.recv(65536)
    assert get(port, "/api/runs")[0] == 200


def send_nothing(port):
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def send_half(port):
    client = send_nothing(port)
    client.sendall(b"GET /api/state HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a")
    return client


def read_nothing(port):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET /large.txt HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert select.select([client], [], [], 10)[0]
    time.sleep(0.1)  # until the answer waits to be read
    return client


@pytest.mark.parametrize("connect", [send_nothing, send_half, read_nothing])
def test_where_all_places_are_taken_the_oldest_connection_ends(run, tmp_path, monkeypatch, connect):
    monkeypatch.setattr(viewer_server, "MAX_CONNECTIONS", 4)
    large = tmp_path / "large.txt"
    large.write_bytes(bytes(2**25))
    with bound(run) as server:
        port, server.files["/large.txt"] = server.server_address[1], large
        waiting = [connect(port) for _ in range(4)]
        began = time.monotonic()
        assert get(port, "/api/runs")[0] == 200
        assert time.monotonic() - began < 5
        if connect is not read_nothing:
            assert select.select(waiting, [], [], 10)[0] == waiting[:1]
            assert waiting[0].recv(65536) == b""
            for one in waiting[1:]:
                one.sendall(b"\r\n\r\n" if connect is send_half else b"GET /api/state HTTP/1.1\r\nHost: ::1\r\n\r\n")
                assert one.recv(65536).startswith(b"HTTP/1.0 ")
        for one in waiting:
            one.close()


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_come_back_as_the_data_they_are(tmp_path, text):
    more = {
        "messages": ({"role": "user", "content": text}, {"role": "assistant", "content": text}),
        "metrics": {text: 1.0},
        "failure_detail": text,
        "role": text,
    }
    write_step(tmp_path / "run", 0, [record_of(text, text, **more)])
    write_held_out(tmp_path / "run", "eval_greedy", [record_of(text, text)])
    run = indexed(tmp_path / "run")
    [row] = run.index.rollouts(Selection())["rows"]
    with bound(run) as server:
        port = server.server_address[1]
        status, headers, body = ask(port, "/api/runs/run/rollout?key=train:0:0")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        found = json.loads(body)
        assert found["messages"][0]["content"] == found["failure_detail"] == text
        # The index alone has no place for half of a surrogate pair.
        assert found["role"] == found["task"] == row["task"] == encodable(text)
        assert text in found["text"] and text in found["metrics"]
        group = json.loads(ask(port, f"/api/runs/run/group?group={quote_any(found['group'])}")[2])
        assert [one["key"] for one in group["rows"]] == ["train:0:0"]


def quote_any(text):
    return quote(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("", 401),
        ("Bearer guess", 401),
        ("Bearer se:cret", 200),
        (f"Basic {b64encode(b'anybody:se:cret').decode()}", 200),
        (f"Basic {b64encode(b'anybody:guess').decode()}", 401),
        ("Basic \xfc", 401),
        ("Basic /w==", 401),
    ],
)
def test_with_a_key_only_those_who_know_it_are_answered(run, authorization, status):
    with bound(run, key="se:cret") as server:
        for target in ("/", "/api/runs"):
            found, headers, body = ask(server.server_address[1], target, headers={"Authorization": authorization})
            assert found == status and b"se:cret" not in body
            assert status == 200 or headers["WWW-Authenticate"].startswith("Basic ")  # a browser asks for the password


def test_a_taken_port_is_left_for_the_next_unless_it_was_chosen(run, port):
    access = Access("", "SLIMRL_API_KEY")
    other = bind(port, Api([run]), access, is_chosen=False)
    assert port < other.server_address[1] <= port + 20
    other.server_close()
    with pytest.raises(UserError, match=f"port {port} is taken"):
        bind(port, Api([run]), access, is_chosen=True)
