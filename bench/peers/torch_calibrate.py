#!/usr/bin/env python3
"""Calibration of head temperatures, value temperatures and norm gains: the program against the same in PyTorch eager.

    bench/peers/torch_calibrate.py MODEL TEXT [--length 512] [--tokens 32768] [--threads 2] [--program build/tempera]

MODEL is a folder that transformers reads (tempera export FILE.gguf --out FOLDER). Both freeze every other weight, read the same
text and do the same number of steps; each in a process of its own, one after the other. Prints tokens/s of the steps and peak
memory, and the ratios; above 1: the program is faster, or needs less.
"""

import argparse
import json
import os
import pathlib
import resource
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
    parser.add_argument("--program", type=pathlib.Path, default=pathlib.Path("build/tempera"))
    parser.add_argument("--eager", action="store_true", help="the PyTorch side alone, as JSON")
    return parser.parse_args()


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
    print(json.dumps({"tokens_per_second": rows * options.length * steps / sum(times),
                      "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def program(options):
    with tempfile.TemporaryDirectory() as folder:
        command = [options.program, "calibrate", options.model, "--text", options.text, "--length", options.length, "--tokens",
                   options.tokens, "--step-tokens", options.step_tokens, "--threads", options.threads, "--passkey-cases", 0,
                   "--eval-lengths", options.length, "--eval-tokens", options.length, "--out", f"{folder}/run", "--json"]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(done.stderr)
        result = json.loads(done.stdout)
    return {"tokens_per_second": result["tokens"] / result["seconds"],
            "peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024}


def main():
    options = arguments()
    if options.eager:
        return eager(options)
    ours = program(options)
    done = subprocess.run([sys.executable, *sys.argv, "--eager"], stdout=subprocess.PIPE, text=True, check=True)
    theirs = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps({"ours": ours, "torch": theirs,
                      "speed_ratio": ours["tokens_per_second"] / theirs["tokens_per_second"],
                      "memory_ratio": theirs["peak_mb"] / ours["peak_mb"]}, indent=2))


if __name__ == "__main__":
    main()
