#!/usr/bin/env python3
"""Calibration of head temperatures, value temperatures and norm gains: the program against the same in PyTorch eager.

    bench/peers/torch_calibrate.py MODEL TEXT [--length 512] [--tokens 32768] [--threads 2] [--rounds 3] [--program build/tempera ...]

MODEL is a folder that transformers reads (tempera export FILE.gguf --out FOLDER). All freeze every other weight, read the same
text and do the same number of steps; each in a process of its own, in turn, --rounds times, so that whatever else the machine
does hits all of them. Prints tokens/s of the steps and peak memory (medians over the rounds), and the ratios, that of speed as
the median of the rounds' own; above 1: the program is faster, or needs less. Several programs, say two builds, are compared in
the same turns.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--step-tokens", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", type=pathlib.Path, nargs="+", default=[pathlib.Path("build/tempera")])
    parser.add_argument("--eager", action="store_true", help="the PyTorch side alone, as JSON")
    options = parser.parse_args()
    for name, paths in (("MODEL", [options.model]), ("TEXT", [options.text]), ("--program", options.program)):
        for path in paths:
            if not path.exists():
                parser.error(f"{name}: '{path}' is not there")
    if min(options.rounds, options.length, options.tokens, options.step_tokens, options.threads) < 1:
        parser.error("--rounds, --length, --tokens, --step-tokens and --threads: at least 1 expected")
    return options


def temper(model, torch):
    """Learned scales on the outputs of q_proj and v_proj, and the gains of the norms; all else is frozen."""
    model.requires_grad_(False)
    config = model.config
    size = config.hidden_size // config.num_attention_heads
    learned, rates = [], []

    def scaled(module, heads):
        theta = torch.nn.Parameter(torch.zeros(heads))
        learned.append(theta)
        rates.append(3e-2)
        module.register_forward_hook(lambda _, __, out: (out.unflatten(-1, (heads, size)) * theta.exp()[:, None]).flatten(-2))

    for layer in model.model.layers:
        scaled(layer.self_attn.q_proj, config.num_attention_heads)
        scaled(layer.self_attn.v_proj, config.num_key_value_heads)
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            learned.append(parameter.requires_grad_(True))
            rates.append(3e-3)
    return torch.optim.Adam([{"params": [p], "lr": rate} for p, rate in zip(learned, rates)], betas=(0.9, 0.99))


def eager(options):
    import torch
    import transformers
    torch.set_num_threads(options.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    with open(options.text, encoding="utf-8") as text:
        ids = torch.tensor(tokenizer(text.read(20 * options.tokens))["input_ids"])
    optimizer = temper(model, torch)
    rows = max(1, options.step_tokens // options.length)
    micro = max(1, 2048 // options.length)
    steps = -(-options.tokens // (rows * options.length))
    windows = ids[:ids.numel() // options.length * options.length].view(-1, options.length)
    times = []
    for step in range(steps):
        begin = time.perf_counter()
        for first in range(0, rows, micro):
            at = (step * rows + first) % max(1, windows.size(0) - micro)
            batch = windows[at:at + micro]
            loss = model(batch, labels=batch).loss * micro / rows
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - begin)
    print(json.dumps({"tokens_per_second": rows * options.length * steps / sum(times)}))


def run(command):
    """The output of a command and its peak memory."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=errors, text=True)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        errors.seek(0)
        if status:
            sys.exit(errors.read())
    return output, usage.ru_maxrss / 1024


def ours(options, program):
    with tempfile.TemporaryDirectory() as folder:
        output, peak = run([program, "calibrate", options.model, "--text", options.text, "--length", options.length, "--tokens",
                            options.tokens, "--step-tokens", options.step_tokens, "--threads", options.threads,
                            "--passkey-cases", 0, "--eval-lengths", options.length, "--eval-tokens", options.length,
                            "--out", f"{folder}/run", "--json"])
    result = json.loads(output)
    return {"tokens_per_second": result["tokens"] / result["seconds"], "peak_mb": peak}


def theirs(options):
    output, peak = run([sys.executable, *sys.argv, "--eager"])
    return {**json.loads(output.splitlines()[-1]), "peak_mb": peak}


def main():
    options = arguments()
    if options.eager:
        return eager(options)
    rounds = []
    for _ in range(options.rounds):
        rounds.append([ours(options, program) for program in options.program] + [theirs(options)])
        print("tokens/s:", *(f"{side['tokens_per_second']:.1f}" for side in rounds[-1]), file=sys.stderr, flush=True)

    def median(value):
        return statistics.median(map(value, rounds))

    report = {}
    for at, name in enumerate([*map(str, options.program), "torch"]):
        report[name] = {key: median(lambda sides, at=at, key=key: sides[at][key]) for key in rounds[0][at]}
        if name != "torch":
            report[name]["speed_ratio"] = median(lambda sides, at=at: sides[at]["tokens_per_second"] / sides[-1]["tokens_per_second"])
            report[name]["memory_ratio"] = median(lambda sides, at=at: sides[-1]["peak_mb"] / sides[at]["peak_mb"])
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
