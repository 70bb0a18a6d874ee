"""The pages that verbs write, and `tempera report`: whole, offline, small, and with the numbers of the results."""

import base64
import csv
import io
import json
import re
import shutil
import signal
import subprocess
import xml.etree.ElementTree as ET

import pytest

from program import PATIENCE, PROGRAM, fails, few, result, run, wait_until

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="build/tempera is not built")

TEXT = "".join(f"{i * i % 97} is the rest of {i} squared, and {i} and {i + 1} make {2 * i + 1}.\n" for i in range(400))
SHAPE = ["--layers", 1, "--width", 16, "--heads", 2, "--context", 32]
STEPS = ["--steps", 6, "--batch", 2, "--warmup", 1, "--eval-rows", 2, "--eval-every", 3, "--log-every", 1, "--device", "cpu"]
TOY = ["--steps", 4, "--seeds", 2, "--methods", "softmax,ssa"]
PHONEBOOK = ["--steps", 12, "--batch", 2, "--methods", "softmax,ssa", "--seeds", 2, "--task.test-max", 64, "--device", "cpu"]
LARGEST = 2_000_000


class Page:
    """A page, checked to be one file of well-formed markup that runs nothing and loads nothing."""

    def __init__(self, path):
        self.text = path.read_text()
        self.root = ET.fromstring(self.text)
        assert len(self.text.encode()) < LARGEST
        assert "<script" not in self.text and "tempera report" in self.text[:1024]
        assert "default-src 'none'" in self.text and "@media print" in self.text and "prefers-color-scheme: dark" in self.text
        for node in self.root.iter():
            for name, value in node.attrib.items():
                assert not name.startswith("on"), name
                if name.split("}")[-1] in ("href", "src"):
                    assert value.startswith(("data:", "#")), value
        plain = self.text.replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xlink", "")
        for outside in ("http:", "https:", "@import", "url("):
            assert outside not in plain, outside

    def texts(self, tag, **attributes):
        return ["".join(node.itertext()) for node in self.root.iter(tag) if all(node.get(k) == v for k, v in attributes.items())]

    @property
    def answer(self):
        return next(iter(self.root.find(".//dl").iterfind("dd[@class='answer']"))).text

    def saved(self, kind):
        """The contents of the links that save figures."""
        links = [node.get("href") for node in self.root.iter("a") if node.get("download", "").endswith("." + kind)]
        return [base64.b64decode(link.split(";base64,")[1]).decode() for link in links]

    def numbers(self):
        """{(chart, series): [(x, y), ...]} of all figures."""
        found = {}
        for text in self.saved("csv"):
            for row in csv.DictReader(io.StringIO(text)):
                found.setdefault((row["chart"], row["series"]), []).append((row["x"], float(row["y"]) if row["y"] else None))
        return found

    def check(self):
        figures = sum(1 for _ in self.root.iter("figure"))
        assert figures and len(self.saved("svg")) == len(self.saved("csv")) == figures
        for picture in self.saved("svg"):
            assert ET.fromstring(picture).tag.endswith("svg")
        assert [text for text in self.texts("dt")[:3]] == ["What was asked", "The answer", "What it does not show"]
        assert self.answer.endswith("."), self.answer
        return self


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A tiny run of every verb that has a report, by its name."""
    folder = tmp_path_factory.mktemp("runs")
    text = folder / "a <b> & 'c'.txt"
    text.write_text(TEXT)
    common = ["--text", text]
    made = {"train": ["train", *common, *SHAPE, *STEPS],
            "finetune": ["finetune", folder / "train", *common, *STEPS, "--temperature", "ssa"],
            "calibrate": ["calibrate", folder / "train", *common, "--threads", 1, "--passkey-cases", 0, "--eval-tokens", 200,
                          "--step-tokens", 32, "--tokens", 64, "--learn", "head", "--device", "cpu"],
            "compare": ["compare", *PHONEBOOK],
            "compare-text": ["compare", *common, *SHAPE, "--steps", 12, "--batch", 2, "--warmup", 1, "--methods", "softmax,ssa",
                             "--seeds", 2, "--device", "cpu"],
            "denoise": ["study", "denoise", *TOY], "graph": ["study", "graph", *TOY[:-1], "softmax,ssa:v=false", "--nodes", 12, "--neighbours", 3],
            "ablation": ["study", "ablation", *PHONEBOOK], "dilution": ["study", "dilution", *PHONEBOOK],
            "dilution-model": ["study", "dilution", folder / "train", *common],
            "eval": ["eval", folder / "train", *common], "passkey": ["eval", folder / "train", "--task", "passkey", "--lengths",
                                                                     "200,400", "--cases", 1, "--depths", "0,1"]}
    for name, words in made.items():
        done = run(*words, "--out", folder / name)
        assert done.returncode == 0, (name, done.stderr)
    return folder


NAMES = ["train", "finetune", "calibrate", "compare", "compare-text", "denoise", "graph", "ablation", "dilution", "dilution-model", "eval",
         "passkey"]


@pytest.mark.parametrize("name", few(4, NAMES))
def test_a_runs_page_is_what_report_makes_of_its_results(runs, name, tmp_path):
    page = Page(runs / name / "report.html").check()
    found = result("report", runs / name, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.text
    assert found["bytes"] == (tmp_path / "page.html").stat().st_size
    (one,) = found["runs"]
    assert one["answer"] == page.answer and one["folder"] == str(runs / name)
    assert one["verb"].split()[0] == {"passkey": "eval", "compare-text": "compare"}.get(
        name, name if name in ("train", "finetune", "calibrate", "compare", "eval") else "study")


def test_the_page_of_a_training_has_its_log(runs):
    log = [json.loads(line) for line in (runs / "train" / "log.jsonl").read_text().splitlines()]
    numbers = Page(runs / "train" / "report.html").numbers()
    steps = [line for line in log if "loss" in line]
    assert len(steps) == 6
    assert numbers["Loss", "training"] == [(str(line["step"]), line["loss"]) for line in steps]
    assert numbers["Loss", "held out"] == [(str(line["step"]), line["validation_loss"]) for line in log if "validation_loss" in line]
    assert numbers["Learning rate", ""] == [(str(line["step"]), line["learning_rate"]) for line in steps]
    assert numbers["Speed", ""] == [(str(line["step"]), line["tokens_per_second"]) for line in steps]


def test_the_page_of_a_comparison_has_its_results(runs):
    results = json.loads((runs / "compare" / "results.json").read_text())["results"]
    numbers = Page(runs / "compare" / "report.html").numbers()
    for method, found in results.items():
        assert numbers["Accuracy on held-out data", method] == [(size, value["mean"]) for size, value in found["accuracy"].items()]
    text = json.loads((runs / "compare-text" / "results.json").read_text())["results"]
    best = min(text, key=lambda name: list(text[name]["loss"].values())[-1]["mean"])
    assert best in Page(runs / "compare-text" / "report.html").answer


def test_the_page_of_an_evaluation_has_its_results(runs):
    found = json.loads((runs / "eval" / "eval.json").read_text())
    page = Page(runs / "eval" / "report.html")
    low, high = found["perplexity_interval"]
    assert low < found["perplexity"] < high
    assert f"{found['perplexity']:.2f} (95 % interval {low:.2f} to {high:.2f})" in page.answer
    assert [y for _, y in page.numbers()["Perplexity by tokens seen", "perplexity"]] == pytest.approx(
        [bucket["perplexity"] for bucket in found["by_position"]])
    # Text of a file's name stays text.
    assert "a <b> & 'c'.txt" in page.texts("dd")[0] and "<b>" not in page.text.split("</style>")[1]


def test_several_runs_become_one_page(runs, tmp_path):
    out = tmp_path / "page.html"
    names = ["train", "finetune", "compare", "eval", "calibrate", "denoise"]
    found = result("report", *[runs / name for name in names], "--out", out)
    page = Page(out)
    assert [one["folder"] for one in found["runs"]] == [str(runs / name) for name in names]
    rows = page.root.find(".//table").findall(".//tbody/tr")
    assert [row[0][0].text for row in rows] == names and [row[3].text for row in rows] == [one["answer"] for one in found["runs"]]
    for i in range(len(names)):
        assert rows[i][0][0].get("href") == f"#part-{i + 1}" and page.root.find(f".//h2[@id='part-{i + 1}']") is not None
    numbers = page.numbers()
    own = Page(runs / "finetune" / "report.html").numbers()
    assert numbers["Loss", "finetune: training"] == own["Loss", "training"]
    assert numbers["Learning rate", "train"] == Page(runs / "train" / "report.html").numbers()["Learning rate", ""]
    # Every part has its own figures too.
    assert numbers["Loss", "training"] and numbers["Mean squared error", "ssa"]


def test_a_folder_is_named_where_names_are_the_same(runs, tmp_path):
    for place in ("a", "b"):
        shutil.copytree(runs / "eval", tmp_path / place / "eval")
    done = run("report", "a/eval", "b/eval", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "a/eval: " in done.stdout and "b/eval: " in done.stdout and "report: report.html" in done.stdout
    assert "a/eval" in Page(tmp_path / "report.html").text


def test_a_run_that_was_interrupted_has_a_page(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    work = subprocess.Popen([PROGRAM, "train", "--text", tmp_path / "text.txt", *map(str, SHAPE), "--steps", "1000000", "--batch", "2",
                             "--eval-every", "20", "--log-every", "1", "--out", tmp_path / "run"], stderr=subprocess.DEVNULL)
    assert wait_until((tmp_path / "run" / "report.html").exists, work), "there is a page at the first validation"
    working = Page(tmp_path / "run" / "report.html").check()
    assert "Not finished" in working.answer
    work.send_signal(signal.SIGINT)
    work.wait(PATIENCE)
    page = Page(tmp_path / "run" / "report.html")
    last = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[-1])["step"]
    assert f"That took {last:,} steps" in page.answer and "--config" in "".join(page.texts("li"))
    # Of a process that was killed, there are only run.json and the log.
    (tmp_path / "run" / "report.html").unlink()
    assert run("report", tmp_path / "run").returncode == 0
    assert (tmp_path / "run" / "report.html").read_text() == page.text


def test_a_comparison_that_was_stopped_shows_the_seeds_that_are_done(runs, tmp_path):
    shutil.copytree(runs / "compare", tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    (tmp_path / "run" / "jobs" / "ssa-seed0.json").unlink()
    found = result("report", tmp_path / "run")
    assert found["runs"][0]["answer"].startswith("Not finished: 1 of 2 seeds are done for every method. ")
    all_seeds = json.loads((runs / "compare" / "results.json").read_text())["results"]["ssa"]["accuracy"]
    assert Page(tmp_path / "run" / "report.html").numbers()["Accuracy on held-out data", "ssa"] == [
        (size, value["seeds"][1]) for size, value in all_seeds.items()]
    (tmp_path / "run" / "jobs" / "softmax-seed1.json").unlink()
    fails(1, [str(tmp_path / "run"), "no seed"], "report", tmp_path / "run", "--out", tmp_path / "page.html")


def test_only_reports_are_replaced(runs, tmp_path):
    mine = tmp_path / "mine.html"
    mine.write_text("<html>mine</html>")
    fails(2, [str(mine), "--out"], "report", runs / "eval", "--out", mine)
    assert mine.read_text() == "<html>mine</html>"
    fails(2, [str(tmp_path)], "report", runs / "eval", "--out", tmp_path)
    (tmp_path / "link.html").symlink_to(tmp_path / "nowhere.html")
    fails(2, ["link.html"], "report", runs / "eval", "--out", tmp_path / "link.html")
    for name in ("eval", "train"):
        assert run("report", runs / name, "--out", tmp_path / "page.html").returncode == 0
    assert (tmp_path / "page.html").read_text() == (runs / "train" / "report.html").read_text()
    assert run("report", runs / "eval", "--out", tmp_path / "no" / "page.html").returncode == 1


def test_folders_that_are_no_runs_are_refused_by_name(runs, tmp_path):
    page = ["--out", tmp_path / "page.html"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    fails(2, ["folder"], "report", *page)
    fails(2, [str(tmp_path / "empty"), "run.json"], "report", runs / "eval", tmp_path / "empty", *page)
    fails(2, [str(tmp_path / "none")], "report", tmp_path / "none", *page)
    fails(2, [str(tmp_path / "file")], "report", tmp_path / "file", *page)
    fails(2, ["twice"], "report", runs / "eval", runs / "eval" / ".." / "eval", *page)
    for name, text in {"run.json": "{", "eval.json": "[1]", "results.json": '{"windows": 1}'}.items():
        (tmp_path / name.replace(".", "-")).mkdir()
        (tmp_path / name.replace(".", "-") / name).write_text(text)
        done = run("report", tmp_path / name.replace(".", "-"), *page)
        assert done.returncode == 1 and done.stderr.startswith("tempera"), done.stderr
    for verb, word in {"study nothing": "nothing", "serve": "serve", "compare": "results.json"}.items():
        (tmp_path / "empty" / "run.json").write_text(json.dumps({"id": "1", "verb": verb, "settings": {}}))
        fails(1, [str(tmp_path / "empty"), word], "report", tmp_path / "empty", *page)
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("name, file", [("compare", "results.json"), ("graph", "results.json"), ("calibrate", "calibration.json"),
                                        ("passkey", "eval.json"), ("dilution-model", "results.json")])
def test_results_that_were_damaged_end_in_a_message(runs, tmp_path, name, file):
    """Every value of the results, put in turn to something else: a page or a message, never a crash."""
    shutil.copytree(runs / name, tmp_path / "run", symlinks=True)
    text = (runs / name / file).read_text()
    places = [match.span(1) for match in re.finditer(r": (-?[\d.]+|\"[^\"]*\"|\[|\{)", text)]
    for i, (begin, end) in enumerate(places[::max(1, len(places) // 10)]):
        value = ["-1", "null", '"x"', "1e308"][i % 4]
        damaged = text[:begin] + value + text[end:] if text[begin] not in "[{" else text[:begin]
        (tmp_path / "run" / file).write_text(damaged)
        done = run("report", tmp_path / "run", "--out", tmp_path / f"{i}.html")
        assert done.returncode in (0, 1), (value, done.returncode, done.stderr)
        if done.returncode == 0:
            Page(tmp_path / f"{i}.html")
