#!/usr/bin/env python3
"""Training steps of the model of `tempera bench train`, written with PyTorch's own parts.

    bench/peers/torch_train.py [--modes eager,compile] [--steps N] [--device cuda --dtype bf16] [--json]

times steps on random data. With --serve FILE it takes weights and data from FILE, does a step for each line
"step" that it reads, and answers with the step's loss and seconds: that is how `tempera bench train --peers`
takes turns with it.
"""

import argparse
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)


class Temperature(nn.Module):
    """Selective Self-Attention: a = 1 + tanh(w . gelu(row)) + sigmoid(alpha) log n, for queries and values."""

    def __init__(self, heads, size):
        super().__init__()
        for side in "qv":
            self.register_parameter(f"{side}_w", nn.Parameter(torch.zeros(heads, size)))
            self.register_parameter(f"{side}_slope", nn.Parameter(torch.full((heads,), -2.0)))

    @staticmethod
    def scaled(rows, w, slope, log_n):
        token = torch.tanh((F.gelu(rows) * w[:, None]).sum(-1, keepdim=True))
        return rows * (1 + token + slope.sigmoid()[:, None, None] * log_n[:, None]).to(rows.dtype)

    def forward(self, q, v, log_n):
        return self.scaled(q, self.q_w, self.q_slope, log_n), self.scaled(v, self.v_w, self.v_slope, log_n)


class Attention(nn.Module):
    def __init__(self, arguments):
        super().__init__()
        self.heads = arguments.heads
        self.qkv = nn.Linear(arguments.width, 3 * arguments.width, bias=False)
        self.out = nn.Linear(arguments.width, arguments.width, bias=False)
        if arguments.temperature == "ssa":
            self.temperature = Temperature(arguments.heads, arguments.width // arguments.heads)

    @staticmethod
    def rotated(x, cos, sin):
        first, second = x.chunk(2, -1)
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)

    def forward(self, x, cos, sin, log_n):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scaled = q
        if hasattr(self, "temperature"):
            scaled, v = self.temperature(q, v, log_n)
        out = F.scaled_dot_product_attention(
            self.rotated(scaled, cos, sin), self.rotated(k, cos, sin), v, is_causal=True
        )
        return self.out(out.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, arguments):
        super().__init__()
        self.add_module("in", nn.Linear(arguments.width, 2 * arguments.mlp_size, bias=False))
        self.out = nn.Linear(arguments.mlp_size, arguments.width, bias=False)

    def forward(self, x):
        gate, up = getattr(self, "in")(x).chunk(2, -1)
        return self.out(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, arguments):
        super().__init__()
        self.attention_norm = Norm(arguments.width)
        self.attention = Attention(arguments)
        self.mlp_norm = Norm(arguments.width)
        self.mlp = Mlp(arguments)

    def forward(self, x, *rows):
        x = x + self.attention(self.attention_norm(x), *rows)
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """Names of modules and parameters are those of tempera's checkpoints."""

    def __init__(self, arguments):
        super().__init__()
        self.embedding = nn.Embedding(arguments.vocabulary, arguments.width)
        self.layers = nn.ModuleList(Block(arguments) for _ in range(arguments.layers))
        self.norm = Norm(arguments.width)
        position = torch.arange(arguments.length, dtype=torch.float32)
        half = arguments.width // arguments.heads // 2
        angle = position[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.rows = tuple(rows.to(arguments.device) for rows in (angle.cos(), angle.sin(), (position + 1).log()))

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, *self.rows)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Training:
    def __init__(self, arguments, mode, given=None):
        torch.manual_seed(arguments.seed)
        shape = (arguments.batch, arguments.length)
        model = Decoder(arguments)
        if given:
            self.tokens, self.targets = given.pop("tokens"), given.pop("targets")
            model.load_state_dict(given)
        else:
            self.tokens, self.targets = (torch.randint(arguments.vocabulary, shape) for _ in range(2))
            for parameter in model.parameters():
                if parameter.dim() == 2 and parameter.abs().sum() > 0:
                    nn.init.normal_(parameter, std=0.02)
        model = model.to(arguments.device)
        self.tokens, self.targets = (rows.to(arguments.device) for rows in (self.tokens, self.targets))
        self.device, self.autocast = arguments.device, arguments.dtype == "bf16"
        decayed = [p for name, p in model.named_parameters() if p.dim() == 2 and ".temperature." not in name]
        plain = [p for name, p in model.named_parameters() if p.dim() < 2 or ".temperature." in name]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
            lr=arguments.learning_rate, betas=(0.9, 0.95), eps=1e-8, fused=arguments.fused_adamw or None,
        )
        self.parameters = decayed + plain
        self.model = torch.compile(model) if mode == "compile" else model

    def step(self):
        start = time.perf_counter()
        with torch.autocast(self.device, torch.bfloat16, enabled=self.autocast):
            loss = self.model(self.tokens, self.targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        return loss.item(), time.perf_counter() - start


def serve(arguments):
    from safetensors.torch import load_file

    training = Training(arguments, arguments.modes[0], load_file(arguments.serve))
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for _ in sys.stdin:
        loss, seconds = training.step()
        print(json.dumps({"loss": loss, "seconds": seconds}), flush=True)


def measure(arguments):
    tokens = arguments.batch * arguments.length
    trainings = {mode: Training(arguments, mode) for mode in arguments.modes}
    times = {mode: [] for mode in trainings}
    for training in trainings.values():
        training.step()
    for _ in range(arguments.steps):
        for mode, training in trainings.items():
            times[mode].append(training.step()[1])
    rows = {
        mode: {"step_ms": 1e3 * statistics.median(seconds), "tokens_per_second": tokens / statistics.median(seconds)}
        for mode, seconds in times.items()
    }
    if arguments.json:
        print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "rows": rows}, indent=2))
        return
    for mode, row in rows.items():
        print(f"{mode:8} {row['step_ms']:9.1f} ms a step {row['tokens_per_second']:9.0f} tokens/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shape = {"layers": 6, "width": 384, "heads": 6, "mlp-size": 1024, "vocabulary": 8192, "length": 512, "batch": 8}
    for name, value in (shape | {"threads": 2, "seed": 0, "steps": 5}).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--temperature", choices=["softmax", "ssa"], default="ssa")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=["eager", "compile"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast")
    parser.add_argument("--fused-adamw", action="store_true", help="torch's fused AdamW instead of its default")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", metavar="FILE")
    arguments = parser.parse_args()
    if set(arguments.modes) - {"eager", "compile"}:
        parser.error(f"--modes: {','.join(arguments.modes)} given, eager and compile are there")
    torch.set_num_threads(arguments.threads)
    torch.set_float32_matmul_precision("high" if arguments.device == "cuda" else "highest")
    serve(arguments) if arguments.serve else measure(arguments)


if __name__ == "__main__":
    main()
