"""tempera lens as a process: its page, pictures and numbers, and what it refuses."""

import base64
import json
import math
import re
import struct

import pytest

from program import fails, result, run

TEXT = "a quick <b>brown</b> fox & the lazy dog \u2014 " * 3
SMALL = "--layers 2 --width 64 --heads 2 --context 128 --batch 4 --steps 2 --eval-every 0".split()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lens")
    (folder / "text.txt").write_text(TEXT)
    (folder / "train.txt").write_text(TEXT * 40)
    (folder / "empty.txt").write_text("")
    (folder / "binary.bin").write_bytes(bytes(range(256)) * 4)
    (folder / "million.txt").write_text("a" * 1_000_000)
    for name, method in (("one", "softmax"), ("two", "focal")):
        done = run("train", "--text", folder / "train.txt", "--out", folder / name, "--temperature", method, "--threads", 1, *SMALL)
        assert done.returncode == 0, done.stderr
    return folder


def page_data(page):
    text = page.read_text()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def write_page(files, name, *options):
    page = files / name
    done = run("lens", files / "one", "--text", files / "text.txt", "--out", page, *options)
    if "built without its page" in done.stderr:
        pytest.skip("this build has no page: esbuild and tsc were not there")
    assert done.returncode == 0, done.stderr
    return page


def test_numbers(files):
    found = result("lens", files / "one", "--text", files / "text.txt", "--against", files / "two")
    one, two = found["models"]
    tokens = len(TEXT.encode())
    assert one["tokens"] == [tokens] and not one["rounded"]
    assert [layer["layer"] for layer in one["attentions"]] == [0, 1]
    for layer in one["attentions"]:
        assert layer["heads"]["temperature"] == pytest.approx([1, 1])
        assert all(0 <= entropy <= math.log(tokens) for entropy in layer["heads"]["entropy"])
        assert all(0 < weight <= 1 for weight in layer["heads"]["first"])
    assert two["attentions"][0]["heads"]["temperature"] == pytest.approx([0.4, 0.4])
    assert sum(math.exp(token["logProbability"]) for token in one["next"]) <= 1
    cut = result("lens", files / "one", "--text", files / "text.txt", "--tokens", 20)
    assert cut["models"][0]["tokens"] == [20]


def test_page_is_one_file_without_markup_of_tokens(files):
    page = write_page(files, "page.html", "--against", files / "two")
    text = page.read_text()
    assert not re.search(r"(src|href)\s*=|https?://(?!www\.w3\.org/2000/svg)|@import", text)
    assert "<b>brown" not in text and "default-src 'none'" in text
    data = page_data(page)
    assert "".join(data["texts"][0]) == TEXT and data["comparable"]
    attention = data["models"][0]["attentions"][1]
    assert attention["cell"] == 1
    cells = struct.unpack(f"<{2 * attention['rows'] * (attention['rows'] + 1) // 2}H", base64.b64decode(attention["map"]))
    # Every row of weights sums to 1, each rounded to a 65535th.
    row, first = attention["rows"] - 1, attention["rows"] * (attention["rows"] - 1) // 2
    assert sum(cells[first:first + row + 1]) / 65535 == pytest.approx(1, abs=(row + 1) / 65535)


def test_pictures(files):
    done = run("lens", files / "one", "--text", files / "text.txt", "--svg", files / "svg", "--draw", "1.0", "--png", files / "png")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (files / "svg").iterdir()} == {"overview.svg", "position.svg", "head-1-0.svg"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (files / "png").iterdir())
    # Nothing is overwritten.
    fails(1, ["svg"], "lens", files / "one", "--text", files / "text.txt", "--svg", files / "svg")


def test_a_hidden_number(files):
    found = result("lens", files / "one", "--passkey", 300, "--depth", 0.25, "--seed", 3)["models"][0]
    told = found["passkey"]
    assert re.fullmatch("[1-9][0-9]{4}", told["wanted"]) and told["right"] == (told["given"] == told["wanted"])
    assert found["tokens"] == [300]
    assert result("lens", files / "one", "--passkey", 300, "--seed", 4)["models"][0]["passkey"]["wanted"] != told["wanted"]
    page = files / "passkey.html"
    done = run("lens", files / "one", "--against", files / "two", "--passkey", 300, "--depth", 0.25, "--seed", 3, "--out", page)
    if "built without its page" in done.stderr:
        pytest.skip("this build has no page: esbuild and tsc were not there")
    assert done.returncode == 0, done.stderr
    data = page_data(page)
    text, passkey = data["texts"][0], data["models"][0]["passkey"]
    assert ["".join(text[first:first + count]) for first, count in passkey["places"]] == [told["wanted"]] * 2
    assert "".join(text[passkey["first"] + 1:]).strip() == told["given"]
    assert "".join(text[:passkey["first"] + 1]).rstrip().endswith("The pass key is")
    # The weights on the number's tokens, of the map.
    attention = data["models"][0]["attentions"][1]
    cells = struct.unpack(f"<{2 * 300 * 301 // 2}H", base64.b64decode(attention["map"]))
    row = passkey["first"] + 2
    weights = [weight / 65535 for weight in cells[row * (row + 1) // 2:row * (row + 1) // 2 + row + 1]]
    on, key, weight = passkey["heads"][1][0][2]
    inside = [key for first, count in passkey["places"] for key in range(first, first + count)]
    assert on == pytest.approx(sum(weights[key] for key in inside), abs=1e-4)
    assert key not in inside and weight == pytest.approx(max(w for k, w in enumerate(weights) if k > 0 and k not in inside), abs=1e-4)


def test_what_it_refuses(files):
    model, text = files / "one", files / "text.txt"
    fails(2, ["--text"], "lens", model)
    fails(1, ["empty"], "lens", model, "--text", files / "empty.txt")
    fails(1, ["binary"], "lens", model, "--text", files / "binary.bin")
    fails(1, ["1,000,000", "65,536", "--tokens"], "lens", model, "--text", files / "million.txt")
    fails(2, ["--png"], "lens", model, "--text", text, "--draw", "0.0")
    fails(2, ["0 to 1"], "lens", model, "--text", text, "--draw", "0.2", "--png", files / "refused")
    fails(2, ["LAYER.HEAD"], "lens", model, "--text", text, "--draw", "x", "--png", files / "refused")
    assert not (files / "refused").exists()
    fails(2, ["--passkey"], "lens", model, "--text", text, "--passkey", 300)
    fails(2, ["20 tokens"], "lens", model, "--passkey", 20)
    fails(2, ["65536"], "lens", model, "--passkey", 1_000_000)
    fails(2, ["--export"], "lens", model, "--text", text, "--export", files / "refused", "--json")
    fails(1, [str(files / "one")], "lens", model, "--text", text, "--export", files / "one")
    fails(2, ["encoder-decoder"], "lens", model, "--text", text, "--target", text)


def test_other_tokens_are_refused(files):
    done = run("data", files / "train.txt", "--out", files / "shards", "--train-tokenizer", 300)
    assert done.returncode == 0, done.stderr
    done = run("train", "--text", files / "train.txt", "--tokenizer", files / "shards" / "tokenizer.json", "--out", files / "bpe",
               "--threads", 1, *SMALL)
    assert done.returncode == 0, done.stderr
    fails(1, ["same tokens", "by itself"], "lens", files / "one", "--text", files / "text.txt", "--against", files / "bpe")
