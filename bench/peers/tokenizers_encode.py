#!/usr/bin/env python3
"""Speed of encoding on one thread, ours and the package tokenizers in turn, on the same documents.

    bench/peers/tokenizers_encode.py [--tool build/release/src/tempera/text/tokenizer_tool] [--megabytes 10] TEXT TOKENIZER...

A document is a paragraph of TEXT. Prints one line a tokenizer: megabytes a second of processor time of both, best of three,
and the ratio.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load_peer(path):
    if path.endswith(".txt"):
        return tokenizers.BertWordPieceTokenizer(path, lowercase="uncased" in path)._tokenizer
    description = json.loads(pathlib.Path(path).read_text())
    merges = description["model"].get("merges")
    if merges and isinstance(merges[0], str):
        # The package refuses merges of blanks in the old notation, which some files have.
        pairs = [merge.split(" ") for merge in merges]
        description["model"]["merges"] = [pair for pair in pairs if len(pair) == 2]
    return tokenizers.Tokenizer.from_str(json.dumps(description))


def measure_peer(peer, documents, size):
    best = 0
    for _ in range(3):
        start = time.process_time()
        peer.encode_batch_fast(documents, add_special_tokens=False)  # without offsets, its quickest way
        best = max(best, size / 1e6 / (time.process_time() - start))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("tokenizers", nargs="+")
    parser.add_argument("--tool", default=ROOT / "build" / "release" / "src" / "tempera" / "text" / "tokenizer_tool")
    parser.add_argument("--megabytes", type=float, default=10)
    options = parser.parse_args()
    with open(options.text, encoding="utf-8") as file:
        documents = [part for part in file.read(int(options.megabytes * 1e6)).split("\n\n") if part]
    size = sum(len(document.encode()) for document in documents)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(json.dumps(document) + "\n" for document in documents)
        file.flush()
        for name in options.tokenizers:
            done = subprocess.run([options.tool, "bench", name, file.name], capture_output=True, text=True, check=True)
            ours = json.loads(done.stdout)["megabytes_per_second"]
            theirs = measure_peer(load_peer(name), documents, size)
            print(f"{name}: {ours:.1f} MB/s, tokenizers {tokenizers.__version__} {theirs:.1f} MB/s, "
                  f"{ours / theirs:.1f} times", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
