#!/usr/bin/env python3
"""Perplexity and passkeys at long context, measured in transformers alone: what a user of an exported folder sees.

    bench/peers/transformers_long.py FOLDER TEXT HAY [--lengths 2048,8192,16384] [--tokens 262144] [--cases 40] [--device cuda]

TEXT: held-out text, cut into windows of each length. HAY: text in which a number is hidden at depths spread evenly over the
cases; a case counts as right when every token of the number is the likeliest. Prints one JSON document.
"""

import argparse
import json
import math
import pathlib
import random

import torch
import transformers

QUESTION = "\nWhat is the pass key? The pass key is"


def windows(ids, length, tokens):
    count = max(1, min(tokens, len(ids)) // length)
    return [torch.tensor(ids[i * length:(i + 1) * length])[None] for i in range(count)]


def losses_of(model, batch):
    hidden = model.model(batch).last_hidden_state[0, :-1]
    total = 0.0
    for rows, targets in zip(hidden.split(2048), batch[0, 1:].split(2048)):
        total += torch.nn.functional.cross_entropy(model.lm_head(rows).float(), targets, reduction="sum").item()
    return total


def perplexity(model, ids, length, tokens, device):
    total, count = 0.0, 0
    for batch in windows(ids, length, tokens):
        total += losses_of(model, batch.to(device))
        count += batch.numel() - 1
    return math.exp(total / count)


def passkey(model, tokenizer, hay, length, cases, device):
    random.seed(length)
    hits = 0
    for case in range(cases):
        number = str(random.randrange(10000, 100000))
        key = tokenizer(f"\nThe pass key is {number}. Remember it. {number} is the pass key.\n", add_special_tokens=False).input_ids
        question = tokenizer(QUESTION, add_special_tokens=False).input_ids
        answer = tokenizer(f" {number}", add_special_tokens=False).input_ids
        if not tokenizer.decode(answer[:1]).strip():  # a blank of its own is given, as `tempera eval` does
            question, answer = question + answer[:1], answer[1:]
        room = length - len(key) - len(question) - len(answer)
        begin = random.randrange(max(1, len(hay) - room))
        text = hay[begin:begin + room]
        at = round(case / max(1, cases - 1) * len(text))
        ids = torch.tensor(text[:at] + key + text[at:] + question + answer, device=device)[None]
        hidden = model.model(ids).last_hidden_state[0, -len(answer) - 1:-1]
        hits += bool((model.lm_head(hidden).argmax(-1) == ids[0, -len(answer):]).all())
    return hits / cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("hay", type=pathlib.Path)
    parser.add_argument("--lengths", default="2048,8192,16384")
    parser.add_argument("--tokens", type=int, default=262144)
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(options.folder, dtype=torch.bfloat16).to(options.device).eval()
    text = tokenizer(options.text.read_text(), add_special_tokens=False).input_ids
    hay = tokenizer(options.hay.read_text(), add_special_tokens=False).input_ids
    with torch.no_grad():
        found = {length: {"perplexity": perplexity(model, text, length, options.tokens, options.device),
                          "passkey": passkey(model, tokenizer, hay, length, options.cases, options.device)}
                 for length in map(int, options.lengths.split(","))}
    print(json.dumps({"folder": options.folder, "transformers": transformers.__version__, "lengths": found}))


if __name__ == "__main__":
    main()
