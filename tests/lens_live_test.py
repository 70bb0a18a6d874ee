"""The page of tempera lens as a process shows it: its weights, another temperature, and the requests that it refuses."""

import base64
import json
import math
import re
import signal
import struct
import subprocess
import urllib.error
import urllib.request

import pytest

from program import PATIENCE, PROGRAM, result, run

TEXT = "a quick brown fox & the lazy dog. " * 3
TOKENS = len(TEXT)
SMALL = "--layers 2 --width 64 --heads 2 --context 128 --batch 4 --steps 2 --eval-every 0".split()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("live")
    (folder / "text.txt").write_text(TEXT)
    (folder / "train.txt").write_text(TEXT * 40)
    done = run("train", "--text", folder / "train.txt", "--out", folder / "one", "--threads", 1, *SMALL)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def address(files):
    """Of a new process, which is asked to end and does."""
    yield from started(files)


@pytest.fixture
def exporting(files):
    """The same, which may write a model."""
    yield from started(files, "--export", files / "written")


def started(files, *options):
    process = subprocess.Popen([PROGRAM, "lens", files / "one", "--text", files / "text.txt", *options], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    if not line and "built without its page" in process.communicate()[1]:
        pytest.skip("this build has no page: esbuild and tsc were not there")
    yield re.search(r"http://127\.0\.0\.1:\d+/[0-9a-f]{32}/", line)[0]
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 0, process.communicate()[1]


def answer(address, **options):
    try:
        with urllib.request.urlopen(urllib.request.Request(address, **options), timeout=PATIENCE) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def cells(address, **query):
    words = {"model": 0, "attention": 0, "head": 0, "row": 0, "rows": TOKENS, "key": 0, "keys": TOKENS, "cell": 1, **query}
    status, _, body = answer(f"{address}map?" + "&".join(f"{name}={value}" for name, value in words.items()))
    return status, struct.unpack(f"<{len(body) // 2}H", body) if status == 200 else body.decode()


def data_in(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_page_and_weights(address, files):
    status, headers, body = answer(address)
    assert status == 200 and headers["Cache-Control"] == "no-store" and headers["Referrer-Policy"] == "no-referrer"
    live = data_in(body.decode())
    assert live["live"] and "map" not in live["models"][0]["attentions"][0]
    page = files / "page.html"
    if not page.exists():
        assert run("lens", files / "one", "--text", files / "text.txt", "--out", page).returncode == 0
    held = data_in(page.read_text())["models"][0]["attentions"][1]
    all_cells = struct.unpack(f"<{TOKENS * (TOKENS + 1)}H", base64.b64decode(held["map"]))[TOKENS * (TOKENS + 1) // 2:]
    _, found = cells(address, attention=1, head=1)
    assert [found[row * TOKENS + key] for row in range(TOKENS) for key in range(row + 1)] == list(all_cells)
    assert not any(found[row * TOKENS + key] for row in range(TOKENS) for key in range(row + 1, TOKENS))
    _, tile = cells(address, attention=1, head=1, row=40, rows=30, key=3, keys=9, cell=4)
    assert len(tile) == 8 * 3
    assert tile[0] == max(found[row * TOKENS + key] for row in range(40, 44) for key in range(3, 7))
    _, _, body = answer(f"{address}top?model=0&attention=0&row=50")
    top = json.loads(body)
    assert len(top) == 2 * 2 * 3
    assert max(weight for attention, head, key, weight in top if (attention, head) == (1, 1)) == pytest.approx(
        max(found[50 * TOKENS:51 * TOKENS]) / 65535, abs=1e-5)


def test_another_temperature(address):
    one, same = ask(address, "what-if", {"factors": [[1, 1], [1, 1]]})[1]["models"]
    assert same["next"] == one["next"] and same["attentions"] == one["attentions"]
    one, half = ask(address, "what-if", {"factors": [[1, 1], [0.5, 1]]})[1]["models"]
    assert half["attentions"][1]["metrics"]["temperature"] == pytest.approx([0.5, 1])
    assert half["attentions"][0]["metrics"] == one["attentions"][0]["metrics"]
    assert half["next"] != one["next"]
    assert cells(address, model=1, attention=1)[1] != cells(address, model=0, attention=1)[1]


def ask(address, name, what):
    status, _, body = answer(f"{address}{name}", data=json.dumps(what).encode())
    return status, json.loads(body)


def test_a_page_that_shows_something_else_gets_no_numbers(address):
    first = data_in(answer(address)[2].decode())["shown"]
    assert cells(address, shown=first)[0] == 200
    second = ask(address, "read", {"text": "another text of this program"})[1]["shown"]
    assert second != first
    query = "model=0&attention=0&row=0"
    for name in ("top", "losses", f"map?head=0&rows=1&key=0&keys=1&cell=1&{query}&shown={first}"):
        path = name if "?" in name else f"{name}?{query}&shown={first}"
        status, _, body = answer(f"{address}{path}")
        assert status == 409 and b"reload the page" in body, name
    assert answer(f"{address}top?{query}&shown={second}")[0] == 200


def test_no_change_shows_the_second_model_again(files):
    lens = started(files, "--against", files / "one")
    address = next(lens)
    names = [model["name"] for model in data_in(answer(address)[2].decode())["models"]]
    changed = ask(address, "what-if", {"factors": [[1, 1], [0.5, 1]]})[1]
    assert [model["name"] for model in changed["models"]] == [names[0], "what if"]
    back = ask(address, "what-if", {"factors": [[1, 1], [1, 1]]})[1]
    assert [model["name"] for model in back["models"]] == names
    next(lens, None)


def test_losses_come_after_the_maps(address):
    _, before = ask(address, "what-if", {"factors": [[1, 1], [0.5, 1]]})
    assert before["models"][1]["loss"] is None and before["models"][0]["loss"] > 0
    status, _, body = answer(f"{address}losses?model=1")
    losses = struct.unpack(f"<{TOKENS}f", body)
    assert status == 200 and math.isnan(losses[0]) and all(loss > 0 for loss in losses[1:])
    after = data_in(answer(address)[2].decode())["models"][1]
    assert after["loss"] == pytest.approx(sum(losses[1:]) / (TOKENS - 1), rel=1e-5)
    assert answer(f"{address}losses?model=2")[0] == 400


def test_writes_the_model_that_was_shown_once_and_nowhere_else(exporting, files):
    factors = [[1, 1], [0.5, 1]]
    _, shown = ask(exporting, "what-if", {"factors": factors})
    assert shown["offers"] == {"write": True, "generate": True}
    status, told = ask(exporting, "write", {"factors": factors, "folder": str(files / "elsewhere")})
    assert (status, told) == (200, {"folder": str(files / "written")}) and not (files / "elsewhere").exists()
    found = result("lens", files / "written", "--text", files / "text.txt")["models"][0]
    for layer, attention in enumerate(shown["models"][1]["attentions"]):
        assert found["attentions"][layer]["heads"]["entropy"] == pytest.approx(attention["metrics"]["entropy"], abs=1e-5)
    assert found["attentions"][1]["heads"]["temperature"] == pytest.approx([0.5, 1])
    before = sorted((file, file.stat().st_mtime_ns) for file in (files / "written").iterdir())
    status, told = ask(exporting, "write", {"factors": factors})
    assert status == 409 and "written" in told["error"]["message"]
    assert sorted((file, file.stat().st_mtime_ns) for file in (files / "written").iterdir()) == before
    done = run("export", files / "written", "--fold", "--out", files / "folded")
    assert done.returncode == 0, done.stderr


def test_writes_no_model_where_no_place_was_given(address):
    status, told = ask(address, "write", {"factors": [[1, 1], [0.5, 1]]})
    assert status == 409 and "--export" in told["error"]["message"]


def test_a_text_grows_by_what_the_model_writes(address, files):
    prompt = "a quick <b>brown"
    status, page = ask(address, "read", {"text": prompt})
    assert status == 200 and "".join(page["texts"][0]) == prompt
    for _ in range(4):
        likeliest = page["models"][0]["next"][0]["text"]
        before = page["texts"][0]
        _, page = ask(address, "grow", {})
        assert page["texts"][0] == [*before, likeliest]
        assert page["models"][0]["attentions"][1]["rows"] == len(before) + 1
    done = run("generate", files / "one", "--prompt", prompt, "--max-tokens", 4, "--sampling-temperature", 0, "--json")
    assert json.loads(done.stdout)["answers"][0]["text"].endswith("".join(page["texts"][0][-4:]))
    _, found = cells(address, attention=1, rows=len(prompt) + 4, keys=len(prompt) + 4)
    assert len(found) == (len(prompt) + 4) ** 2


@pytest.mark.parametrize("what", [{}, [], {"text": 1}, {"text": ""}, {"text": "a" * 70000}, {"text": None}])
def test_refuses_other_texts(address, what):
    status, told = ask(address, "read", what)
    assert status in (400, 409) and "text" in told["error"]["message"]
    assert data_in(answer(address)[2].decode())["texts"][0][:3] == list("a q")


def test_refuses_text_that_is_no_utf8(address):
    assert answer(f"{address}read", data=b'{"text": "\xff\xfe"}')[0] == 400
    assert answer(f"{address}read", data=bytes(range(256)))[0] == 400


@pytest.mark.parametrize("query", [
    {"model": 1}, {"model": -1}, {"attention": 2}, {"head": 2}, {"head": "x"}, {"head": ""}, {"row": TOKENS}, {"row": -1},
    {"rows": 0}, {"rows": TOKENS + 1}, {"row": 5}, {"key": TOKENS, "keys": 1}, {"keys": 2**63}, {"cell": 0}, {"cell": 1025}, {"cell": 10**6}, {"cell": "1e3"}])
def test_refuses_parts_that_are_not_there(address, query):
    status, message = cells(address, **query)
    assert status == 400 and any(name in message for name in query) or "rows" in message


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"{}", b'{"factors": []}', b'{"factors": [[1, 1]]}', b'{"factors": [[1, 1], [1]]}', b'{"factors": [[1, 1], [1, 0]]}',
    b'{"factors": [[1, 1], [1, "1"]]}', b'{"factors": [[1, 1], [1, 1e9]]}', b'{"factors": [[1, 1], 1]}', b"[" * 100000])
def test_refuses_other_factors(address, body):
    status, _, message = answer(f"{address}what-if", data=body)
    assert status == 400 and b"factors" in message
    assert answer(address)[0] == 200


def test_refuses_other_pages_and_names(address):
    host, name = address.rstrip("/").rsplit("/", 1)
    for wrong in ("/", "/map?model=0", f"/{name[:-1]}/", "/" + "0" * 32 + "/", f"/{name}", f"/{name}/other"):
        assert answer(host + wrong)[0] == 404, wrong
    assert answer(address, method="POST", data=b"x")[0] == 405
    assert answer(address, headers={"Origin": "https://example.org"})[0] == 403
    assert answer(address, headers={"Host": "example.org"})[0] in (403, 421)
    for name in ("what-if", "write", "read", "grow"):
        assert answer(f"{address}{name}", data=b"{}", headers={"Origin": "https://example.org"})[0] == 403, name
        assert answer(f"{address}{name}")[0] == 405, name
