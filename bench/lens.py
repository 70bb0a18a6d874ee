#!/usr/bin/env python3
"""Measures the page of tempera lens on one text: how long it takes, and how much memory.

    python3 bench/lens.py build/tempera MODEL TEXT --tokens 2048

The plain pass is tempera eval of the same tokens. Both times hold the start of the program and the reading of the model.
Beside the seconds that pass stand those that the cores work, which other programs on the machine disturb less.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import time
import urllib.request


MOST_TO_CHANGE = 4096  # tokens of the texts that what if and the offline file are measured with


def seconds(work):
    start = time.monotonic()
    result = work()
    return time.monotonic() - start, result


def tell(what, value, unit="s", work=None):
    print(f"{what:<44} {value:9.3f} {unit}" + (f" {work:9.3f} s of cores" if work is not None else ""), flush=True)


def work_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Page:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = re.search(r"http://\S+/", self.process.stdout.readline())[0]

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self.address + path, data=data), timeout=600) as answer:
            return answer.read()

    def tile(self, head, cell, row, key, tokens):
        """256 x 256 cells, as the page asks for them."""
        span = [f"{name}={first}&{name}s={min(256 * cell, tokens - first)}" for name, first in (("row", row), ("key", key))]
        return self.ask(f"map?model=0&attention={head[0]}&head={head[1]}&cell={cell}&" + "&".join(span))

    def work(self):
        """Seconds of all its threads."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def time(self, ask):
        before = self.work()
        took, _ = seconds(ask)
        return took, self.work() - before

    def peak(self):
        """GB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024 / 1e9

    def end(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def measure_tiles(page, tokens):
    cell = max(1, 2 ** ((tokens - 1) // 512).bit_length())
    side = 256 * cell
    whole = [(row, key) for row in range(0, tokens, side) for key in range(0, row + 1, side)]
    first, work = page.time(lambda: [page.tile((1, 0), cell, row, key, tokens) for row, key in whole])
    tell("the map of a head, whole", first, work=work)
    zoomed = []
    while cell > 1:
        cell //= 2
        place = tokens // 2 // (256 * cell) * 256 * cell
        zoomed.append(page.time(lambda cell=cell, place=place: page.tile((1, 0), cell, place, 0, tokens)))
    if zoomed:
        took, work = max(zoomed)
        tell("a tile of it while zooming, the slowest", took, work=work)


def measure_what_if(page, attentions):
    layers = len(attentions)
    for layer in sorted({0, layers // 2, layers * 3 // 4, layers - 1}):
        factors = [[1] * attention["heads"] for attention in attentions]
        factors[layer][0] = 0.5
        took, work = page.time(lambda: page.ask("what-if", {"factors": factors}))
        tell(f"what if, a head of layer {layer}", took, work=work)
    took, work = page.time(lambda: page.ask("losses?model=1"))
    tell("its losses", took, work=work)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--tokens", type=int, default=2048)
    given = parser.parse_args()
    tokens = str(given.tokens)
    plain, _ = seconds(lambda: subprocess.run([given.program, "eval", given.model, "--text", given.text, "--window", tokens,
                                               "--eval-tokens", tokens], check=True, capture_output=True))
    plain_work = work_of_children()
    tell("plain pass", plain, work=plain_work)
    lens = [given.program, "lens", given.model, "--text", given.text, "--tokens", tokens]
    took, page = seconds(lambda: Page(lens))
    asked, text = seconds(lambda: page.ask("").decode())
    tell("page", took + asked, work=page.work())
    tell("page, of a plain pass", (took + asked) / plain, "times")
    tell("page, of a plain pass's work", page.work() / plain_work, "times")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])
    measure_tiles(page, len(data["texts"][0]))
    tell("most memory", page.peak(), "GB")
    if given.tokens <= MOST_TO_CHANGE:
        measure_what_if(page, data["models"][0]["attentions"])
        tell("most memory, with what if", page.peak(), "GB")
    page.end()
    if given.tokens > MOST_TO_CHANGE:
        return
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "page.html"
        took, _ = seconds(lambda: subprocess.run([*lens, "--out", file], check=True, capture_output=True))
        tell("offline file", took)
        tell("its size", file.stat().st_size / 1e6, "MB")


if __name__ == "__main__":
    main()
