"""The page of tempera lens in a real browser: it opens without a network, and what it shows are the weights of the reference."""

import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from program import LONG, PATIENCE, PROGRAM, run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
TEXT = "a quick <b>brown</b> fox & the <script>document.title='broken'</script> dog.\n" * 2
SMALL = "--layers 2 --width 64 --heads 2 --context 256 --batch 4 --steps 30 --eval-every 0".split()

pytestmark = [pytest.mark.skipif(not LONG, reason="starts a browser; set TEMPERA_LONG=1"),
              pytest.mark.skipif(CHROMIUM is None, reason="no chromium (scripts/setup --dev installs it)")]


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright (scripts/setup --dev installs it)")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    (folder / "text.txt").write_text(TEXT)
    (folder / "train.txt").write_text(TEXT * 60)
    for name, method in (("one", "softmax"), ("two", "focal")):
        done = run("train", "--text", folder / "train.txt", "--out", folder / name, "--temperature", method, "--threads", 1, *SMALL)
        assert done.returncode == 0, done.stderr
    done = run("lens", folder / "one", "--against", folder / "two", "--text", folder / "text.txt", "--out", folder / "page.html")
    if "built without its page" in done.stderr:
        pytest.skip("this build has no page: esbuild and tsc were not there")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(params=["light", "dark"])
def page(request, browser, files):
    context = browser.new_context(offline=True, color_scheme=request.param, viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(1000 * PATIENCE)
    opened, faults, asked = context.new_page(), [], []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("request", lambda call: asked.append(call.url))
    opened.goto((files / "page.html").as_uri())
    opened.wait_for_selector("#text span")
    yield opened
    assert not faults
    assert all(url.startswith(("file:", "blob:", "data:")) for url in asked)
    context.close()


@pytest.fixture
def live_page(browser, files, tmp_path):
    command = [PROGRAM, "lens", files / "one", "--text", files / "text.txt", "--export", tmp_path / "written"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = re.search(r"http://\S+", process.stdout.readline())[0]
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(1000 * PATIENCE)
    opened, faults = context.new_page(), []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    opened.goto(address)
    opened.wait_for_load_state("networkidle")
    yield opened
    assert not faults
    context.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 0


def point_at(page, row, key, tokens=len(TEXT.encode())):
    """Moves the mouse to the middle of a cell of the whole map."""
    page.locator("#map").scroll_into_view_if_needed()
    box = page.locator("#map").bounding_box()
    label = 74
    size = box["width"] - label - 1
    page.mouse.move(box["x"] + label + (key + 0.5) * size / tokens, box["y"] + label + (row + 0.5) * size / tokens)
    return page.locator("#readout").text_content()


def number_at_the_end(text):
    return float(text.rsplit(" ", 1)[1])


def choose_head(page, layer, head):
    for _ in range(4):
        page.keyboard.press("[")
    for _ in range(layer * 2 + head):
        page.keyboard.press("]")


def test_weights_are_those_of_transformers(page, files):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = files / "hugging-face"
    if not folder.exists():
        done = run("export", files / "one", "--out", folder)
        assert done.returncode == 0, done.stderr
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64)
    with torch.no_grad():
        seen = model(torch.tensor([list(TEXT.encode())]), output_attentions=True).attentions
    for layer, head, row, key in ((0, 0, 1, 0), (0, 1, 77, 3), (1, 0, 60, 41), (1, 1, 140, 139), (1, 1, 20, 30)):
        choose_head(page, layer, head)
        told = point_at(page, row, key)
        assert told.startswith(f"query {row} ") and f"key {key} " in told
        # Five digits are shown, of a 65535th.
        assert number_at_the_end(told) == pytest.approx(seen[layer][0, head, row, key].item(), abs=1.4e-5)


def test_tokens_are_text(page):
    assert "".join(page.locator("#text span").all_text_contents()) == TEXT
    assert page.title().startswith("Attention of") and page.locator("#text b").count() == 0


def test_zoom_shows_tokens_and_pictures_change(page):
    point_at(page, 70, 60)
    before = page.locator("#map").screenshot()
    for _ in range(4):
        page.mouse.wheel(0, -300)
    page.locator("#zoom-in").click()
    assert page.locator("#map").screenshot() != before
    page.locator("#zoom-all").click()
    point_at(page, 70, 60)
    assert page.locator("#map").screenshot() == before


def test_compares(page):
    page.locator("#metric").select_option(label="Temperature")
    assert "from 1.000" in page.locator("#legend").text_content()
    page.locator("#model").select_option("1")
    assert "from 0.400" in page.locator("#legend").text_content()
    page.locator("#model").select_option("difference")
    assert "up to 0.600" in page.locator("#legend").text_content()
    assert "\u2192" in point_at(page, 70, 60)
    assert page.locator("#chart polyline").count() == 2


def test_keyboard(page):
    selected = page.locator("#text span.selected")
    last = len(TEXT.encode()) - 1
    assert selected.get_attribute("data-index") == str(last)
    page.keyboard.press("j")
    assert selected.get_attribute("data-index") == str(last - 1)
    assert f"Token {last - 1} " in page.locator("#top-caption").text_content()
    title = page.locator("#head-title").text_content()
    page.keyboard.press("]")
    assert page.locator("#head-title").text_content() != title
    page.keyboard.press("m")
    assert page.locator("#metric").input_value() == "1"
    page.keyboard.press("o")
    assert page.locator("#order").input_value() == "value"
    page.keyboard.press("p")
    page.keyboard.press("]")
    assert page.locator("#chart polyline").count() == 4
    theme = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != theme
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.locator("#overview").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("#overview").evaluate("element => element === document.activeElement")


def test_top_keys_choose_their_head(page):
    first = page.locator("#top-keys tr").first
    label = first.locator("td").first.text_content()
    first.click()
    assert page.locator("#head-title").text_content().startswith(label)
    page.locator('#text span[data-index="2"]').click()
    positions = page.locator("#top-keys td:nth-child(3)")
    assert "0" in positions.all_text_contents()
    page.locator("#without-first").check()
    assert positions.count() and "0" not in positions.all_text_contents()
    for shade in ("to", "loss", "temperature"):
        page.locator("#shade").select_option(shade)
        assert page.locator("#text-note").text_content()


@pytest.mark.parametrize("what, begins", [("save-map", b"\x89PNG"), ("save-chart", b"<svg"), ("save-csv", b"model,attention,layer")])
def test_saves(page, what, begins):
    with page.expect_download() as waiting:
        page.locator(f"#{what}").click()
    assert pathlib.Path(waiting.value.path()).read_bytes().startswith(begins)


@pytest.mark.parametrize("width", [1280, 1920])
def test_nothing_is_wider_than_the_window(page, width):
    page.set_viewport_size({"width": width, "height": 1000})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_live_weights_are_those_of_the_file(live_page, browser, files):
    held = browser.new_page(viewport={"width": 1280, "height": 900})
    held.goto((files / "page.html").as_uri())
    for page in (live_page, held):
        page.keyboard.press("]")
    live_page.wait_for_load_state("networkidle")
    for row, key in ((0, 0), (77, 3), (140, 139)):
        assert point_at(live_page, row, key) == point_at(held, row, key)
    assert live_page.locator("#top-keys tr").count() == 12
    colours = "spans => spans.map(span => [span.textContent, span.style.backgroundColor, span.title])"
    assert live_page.locator("#text span").evaluate_all(colours) == held.locator("#text span").evaluate_all(colours)
    held.close()


def test_live_what_if(live_page):
    live_page.keyboard.press("]")
    assert live_page.locator("#scope option").all_text_contents() == ["layer 0, head 1", "all of layer 0", "all heads"]
    live_page.locator("#factor").fill("0.5")
    live_page.locator("#scope").select_option("all")
    live_page.locator("#what-if").click()
    live_page.locator("#what-if-note", has_text=re.compile("^4 heads")).wait_for()
    assert live_page.locator("#model").input_value() == "difference"
    assert live_page.locator("#facts li").count() == 2
    live_page.locator("#metric").select_option(label="Temperature")
    assert "up to 0.500" in live_page.locator("#legend").text_content()
    live_page.wait_for_load_state("networkidle")
    told = point_at(live_page, 77, 3)
    assert re.search(r"\d\.\d{5} \u2192 \d\.\d{5}$", told), told
    live_page.locator("#factor").fill("0")
    live_page.locator("#what-if").click()
    assert "0.01 to 100" in live_page.locator("#what-if-note").text_content()
    live_page.locator("#what-if-reset").click()
    live_page.locator("#what-if-note", has_text=re.compile("^0 heads")).wait_for()
    assert "up to 0.000" in live_page.locator("#legend").text_content()


def test_live_what_if_tells_the_loss_and_exports(live_page, files, tmp_path):
    live_page.locator("#what-if").click()
    live_page.locator("#what-if-note", has_text=re.compile(r"^1 head .* loss \d\.\d{4} \u2192 \d\.\d{4}\.$")).wait_for()
    assert live_page.locator("#facts li").nth(1).text_content().count("loss") == 1
    live_page.locator("#write").click()
    live_page.locator("#what-if-note", has_text=str(tmp_path / "written")).wait_for()
    done = run("lens", tmp_path / "written", "--text", files / "text.txt", "--json")
    assert done.returncode == 0, done.stderr


def test_live_text_grows(live_page):
    prompt = "a <b>quick</b> "
    live_page.locator("#prompt").fill(prompt)
    live_page.locator("#most-tokens").fill("5")
    live_page.locator("#generate").click()
    live_page.locator("#generate-note", has_text=re.compile("^5 tokens written")).wait_for()
    pieces = live_page.locator("#text span").all_text_contents()
    assert len(pieces) == len(prompt) + 5 and "".join(pieces).startswith(prompt)
    assert live_page.locator("#text span.selected").get_attribute("data-index") == str(len(prompt) + 4)
    assert live_page.locator("#text b").count() == 0
    # Its map is there: the canvas has more colours than an empty one.
    colours = """canvas => { const { data } = canvas.getContext('2d').getImageData(80, 80, 300, 300);
                 return new Set(new Uint32Array(data.buffer)).size; }"""
    assert live_page.locator("#map").evaluate(colours) > 10
    live_page.wait_for_load_state("networkidle")
    assert f"query {len(prompt) + 4} " in point_at(live_page, len(prompt) + 4, 1, len(prompt) + 5)
    live_page.locator("#most-tokens").fill("4000")
    live_page.locator("#generate-more").click()
    live_page.locator("#text span").nth(len(pieces) + 1).wait_for()
    live_page.locator("#generate-stop").click()
    live_page.locator("#generate-note", has_text="stopped").wait_for()
    shown = live_page.locator("#text span").count()
    live_page.wait_for_timeout(300)
    assert live_page.locator("#text span").count() == shown < 4000
    live_page.locator("#what-if").click()
    live_page.locator("#what-if-note", has_text=re.compile(r"^1 head .* loss \d")).wait_for()
    live_page.locator("#prompt").fill("")
    live_page.locator("#generate").click()
    assert "Give a text" in live_page.locator("#generate-note").text_content()


def test_hidden_number(browser, files):
    file = files / "passkey.html"
    done = run("lens", files / "one", "--passkey", 300, "--out", file)
    assert done.returncode == 0, done.stderr
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(file.as_uri())
    wanted = re.search(r"Asked for (\d{5})", page.locator("#passkey-note").text_content())[1]
    assert "".join(page.locator("#text span.number").all_text_contents()) == wanted * 2
    assert page.locator("#passkey-heads tr").count() == 4
    page.locator("#passkey-row-2").click()
    row = int(page.locator("#text span.selected").get_attribute("data-index"))
    assert page.locator("#passkey-caption").text_content().startswith(f"Row {row}, ")
    cells = page.locator("#passkey-heads tr").first.locator("td").all_text_contents()
    page.locator("#passkey-heads tr").first.click()
    assert page.locator("#head-title").text_content().startswith(cells[0])
    # The other key's weight is that of the map.
    assert number_at_the_end(point_at(page, row, int(cells[3]), 300)) == pytest.approx(float(cells[4]), abs=2e-5)
    assert [float(cell) for cell in page.locator("#passkey-heads tr td:nth-child(2)").all_text_contents()] == sorted(
        (float(cell) for cell in page.locator("#passkey-heads tr td:nth-child(2)").all_text_contents()), reverse=True)
    page.close()
