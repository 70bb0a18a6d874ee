#!/usr/bin/env python3
"""Causal attention with SSA's temperatures: the program's against PyTorch's ways to write it, one table of ratios.

    bench/peers/torch_attention.py [--device cuda --dtype bf16] [--batch 4] [--heads 16] [--length 2048] [--head-size 64] [--json]

Ways: eager operators around scaled_dot_product_attention, the same through torch.compile, and FlexAttention, which can only
scale the queries. The program runs first, then PyTorch, each alone on the machine.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import time

import torch
import torch.nn.functional as F


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("fp32", "bf16"))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--ways", default="eager,compile,flex")
    parser.add_argument("--seconds", type=float, default=2, help="for each way")
    parser.add_argument("--program", type=pathlib.Path, default=pathlib.Path("build/tempera"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.program.exists():
        parser.error(f"--program: '{options.program}' is not there; run make build, or name the program")
    options.dtype = options.dtype or ("bf16" if options.device == "cuda" else "fp32")
    return options


def ours(options):
    """(name, forward ms, step ms) of softmax and ssa, from ready q, k and v."""
    command = [options.program, "bench", "attention", "--methods", "softmax,ssa", "--device", options.device, "--dtype", options.dtype,
               "--batch", options.batch, "--heads", options.heads, "--length", options.length, "--head-size", options.head_size,
               "--seconds", options.seconds, "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    rows = [row for row in json.loads(done.stdout)["rows"] if row.get("from", "q k v") == "q k v"]
    return [(f"tempera, {row['method']}", row["forward_ms"], row["step_ms"]) for row in rows]


def temperature(rows, w, slope):
    """1 + tanh(w . gelu(row)) + sigmoid(slope) log n, as a column."""
    n = torch.arange(1, rows.size(2) + 1, device=rows.device, dtype=torch.float32)
    token = torch.tanh((F.gelu(rows.float()) * w[:, None]).sum(-1))
    return (1 + token + torch.sigmoid(slope)[:, None] * n.log())[..., None].to(rows.dtype)


class Problem:
    def __init__(self, options):
        kind = {"device": options.device, "dtype": torch.bfloat16 if options.dtype == "bf16" else torch.float32}
        rows = lambda: torch.randn(options.batch, options.length, options.heads, options.head_size, **kind).transpose(1, 2)
        self.q, self.k, self.v = (rows().requires_grad_() for _ in range(3))
        self.gradient = rows()
        number = lambda *sizes: torch.zeros(*sizes, device=options.device, requires_grad=True)
        self.w = [number(options.heads, options.head_size) for _ in "qv"]
        self.slope = [number(options.heads) for _ in "qv"]

    def leaves(self):
        return [self.q, self.k, self.v, *self.w, *self.slope]

    def softmax(self):
        return F.scaled_dot_product_attention(self.q, self.k, self.v, is_causal=True)

    def ssa(self):
        q = self.q * temperature(self.q, self.w[0], self.slope[0])
        v = self.v * temperature(self.v, self.w[1], self.slope[1])
        return F.scaled_dot_product_attention(q, self.k, v, is_causal=True)

    def flex(self):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        rows = self.q.size(2)
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, rows, rows, device=self.q.device)
        compiled = torch.compile(flex_attention)

        def attend():
            scale = temperature(self.q, self.w[0], self.slope[0])[..., 0].float()
            return compiled(self.q, self.k, self.v, score_mod=lambda s, b, h, i, j: s * scale[b, h, i], block_mask=mask)
        return attend


def backend(device):
    """cuDNN's attention is the fastest on Hopper, and PyTorch does not choose it by itself."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    return sdpa_kernel(order if device == "cuda" else order[1:], set_priority=True)


def median_ms(run, device, seconds):
    """Of single runs on the CPU; on a GPU of runs by fives, so that starting them is hidden behind the work before."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    at_once = 5 if device == "cuda" else 1
    for _ in range(3):
        run()
    times, end = [], time.perf_counter() + seconds / 2
    while len(times) < 3 or time.perf_counter() < end:
        wait()
        begin = time.perf_counter()
        for _ in range(at_once):
            run()
        wait()
        times.append((time.perf_counter() - begin) / at_once)
    return 1e3 * statistics.median(times)


def theirs(options):
    problem = Problem(options)
    ways = {"PyTorch, softmax": problem.softmax}
    wanted = options.ways.split(",")
    if "eager" in wanted:
        ways["PyTorch eager, ssa"] = problem.ssa
    if "compile" in wanted:
        ways["torch.compile, ssa"] = torch.compile(problem.ssa)
    if "flex" in wanted and options.device == "cuda":  # it has no backward pass on a CPU
        ways["FlexAttention, queries alone"] = problem.flex()
    rows = []
    with backend(options.device):
        for name, forward in ways.items():
            def step(run=forward):
                torch.autograd.grad(run(), problem.leaves(), problem.gradient, allow_unused=True)
            with torch.no_grad():
                first = median_ms(forward, options.device, options.seconds)
            rows.append((name, first, median_ms(step, options.device, options.seconds)))
    return rows


def main():
    options = arguments()
    rows = ours(options) + theirs(options)
    reference = next(row for row in rows if row[0] == "tempera, ssa")
    result = [{"name": name, "forward_ms": forward, "step_ms": step, "forward_ratio": forward / reference[1],
               "step_ratio": step / reference[2]} for name, forward, step in rows]
    if options.json:
        print(json.dumps({"torch": torch.__version__, "device": options.device, "dtype": options.dtype, "B": options.batch,
                          "H": options.heads, "T": options.length, "D": options.head_size, "rows": result}, indent=2))
        return
    print(f"B {options.batch}, H {options.heads}, T {options.length}, D {options.head_size}, {options.dtype}, torch {torch.__version__}; "
          "times over tempera's with ssa")
    print(f"{'':<30}{'forward ms':>12}{'step ms':>12}{'forward':>10}{'step':>10}")
    for row in result:
        print(f"{row['name']:<30}{row['forward_ms']:>12.3f}{row['step_ms']:>12.3f}{row['forward_ratio']:>9.2f}x{row['step_ratio']:>9.2f}x")


if __name__ == "__main__":
    main()
