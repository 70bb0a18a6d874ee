#!/usr/bin/env python3
"""A training step of the Python package against the same step written in PyTorch.

    bench/peers/python_train.py [--compile] [--layers 6 --width 384 ...] [--rounds 5] [--threads 2] [--clock cpu] [--device cuda --dtype bf16] [--json]

Three models of one shape, with one set of weights and the same data, all with Selective Self-Attention on queries and values:
  tempera   a Llama of transformers after tempera.apply(model, "ssa"), with attn_implementation="tempera"
  llama     the same Llama with sdpa and the temperature written in PyTorch (bench/peers/torch_train.py has it)
  torch     the decoder of torch_train.py, written by hand in PyTorch
They take turns, a step each, so that whatever else the machine does hits all of them; the losses are compared first. Prints the median
step of each, and the ratios to tempera as the median of the rounds' own: above 1 the package is faster. On a machine that does other
work too, --clock cpu --threads 1 counts the processor's time.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch
import torch_train

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))


def llama(arguments):
    """The shape of torch_train.Decoder as a model of transformers."""
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM._from_config(LlamaConfig(
        vocab_size=arguments.vocabulary, hidden_size=arguments.width, intermediate_size=arguments.mlp_size,
        num_hidden_layers=arguments.layers, num_attention_heads=arguments.heads, num_key_value_heads=arguments.heads,
        max_position_embeddings=arguments.length, rms_norm_eps=1e-6, tie_word_embeddings=True, use_cache=False), attn_implementation="sdpa")


def with_torch_temperature(model, arguments):
    """The formula on the outputs of q_proj and v_proj, as one would write it."""
    size = arguments.width // arguments.heads
    log_n = torch.arange(1, arguments.length + 1, device=arguments.device).log()

    def hook(temperature, side):
        def scaled(_, __, out):
            rows = out.unflatten(-1, (arguments.heads, size)).transpose(1, 2)
            w, slope = getattr(temperature, f"{side}_w"), getattr(temperature, f"{side}_slope")
            return temperature.scaled(rows, w, slope, log_n).transpose(1, 2).flatten(2)
        return scaled

    for layer in model.model.layers:
        attention = layer.self_attn
        attention.temperature = torch_train.Temperature(arguments.heads, size).to(arguments.device)
        attention.q_proj.register_forward_hook(hook(attention.temperature, "q"))
        attention.v_proj.register_forward_hook(hook(attention.temperature, "v"))
    return model


def hand_written_weights(state):
    """A Llama's weights by the names of torch_train.Decoder."""
    given = {"embedding.weight": state["model.embed_tokens.weight"], "norm.weight": state["model.norm.weight"]}
    for name, tensor in state.items():
        theirs = name.removeprefix("model.").replace("self_attn.o_proj", "attention.out").replace("mlp.down_proj", "mlp.out")
        theirs = theirs.replace("input_layernorm", "attention_norm").replace("post_attention_layernorm", "mlp_norm")
        if ".temperature." in name or theirs.endswith(("attention.out.weight", "mlp.out.weight", "_norm.weight")):
            given[theirs.replace("self_attn.temperature", "attention.temperature")] = tensor
    for layer in range(sum(name.endswith("q_proj.weight") for name in state)):
        part = lambda owner, names: torch.cat([state[f"model.layers.{layer}.{owner}.{name}_proj.weight"] for name in names])
        given[f"layers.{layer}.attention.qkv.weight"] = part("self_attn", "qkv")
        given[f"layers.{layer}.mlp.in.weight"] = part("mlp", ("gate", "up"))
    return given


class Training:
    def __init__(self, model, arguments, data):
        self.tokens, self.targets = data
        self.parameters = list(model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=arguments.learning_rate, betas=(0.9, 0.95), fused=True)
        self.model = torch.compile(model.train()) if arguments.compile else model.train()
        self.arguments, self.seconds = arguments, []

    def loss(self):
        if isinstance(self.model, torch_train.Decoder) or isinstance(getattr(self.model, "_orig_mod", None), torch_train.Decoder):
            return self.model(self.tokens, self.targets)
        logits = self.model(self.tokens, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), self.targets.flatten())

    def step(self):
        now = time.process_time if self.arguments.clock == "cpu" else time.perf_counter
        start = now()
        with torch.autocast(self.arguments.device, torch.bfloat16, enabled=self.arguments.dtype == "bf16"):
            loss = self.loss()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        value = loss.item()
        self.seconds.append(now() - start)
        return value


def trainings(arguments):
    import tempera
    torch.manual_seed(arguments.seed)
    data = torch.randint(arguments.vocabulary, (2, arguments.batch, arguments.length), device=arguments.device)
    ours = tempera.apply(llama(arguments).to(arguments.device), "ssa", freeze=False, g="sigmoid")
    with torch.no_grad():
        for temperature in tempera.temperatures(ours):
            for number in temperature.parameters():
                number.add_(0.1 * torch.randn_like(number))
    state = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    ours.set_attn_implementation("tempera")
    theirs = with_torch_temperature(llama(arguments).to(arguments.device), arguments)
    theirs.load_state_dict(state)
    by_hand = torch_train.Decoder(arguments).to(arguments.device)
    by_hand.load_state_dict(hand_written_weights(state))
    return {name: Training(model, arguments, data) for name, model in (("tempera", ours), ("llama", theirs), ("torch", by_hand))}


def measure(arguments):
    found = trainings(arguments)
    for _ in range(2):  # the second one sees the first one's update; both warm up
        losses = {name: training.step() for name, training in found.items()}
        if max(losses.values()) - min(losses.values()) > (1e-2 if arguments.dtype == "bf16" else 1e-3) * losses["tempera"]:
            sys.exit(f"python_train: the models have different losses: {losses}")
    for training in found.values():
        training.seconds.clear()
    for _ in range(arguments.rounds):
        for training in found.values():
            training.step()
    ours = found["tempera"].seconds
    return {name: {"step_ms": 1e3 * statistics.median(training.seconds),
                   "ratio": statistics.median(theirs / mine for theirs, mine in zip(training.seconds, ours))} for name, training in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shape = {"layers": 6, "width": 384, "heads": 6, "mlp-size": 1024, "vocabulary": 8192, "length": 512, "batch": 8}
    for name, value in (shape | {"threads": 2, "seed": 0, "rounds": 5}).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--compile", action="store_true", help="all three under torch.compile")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.temperature = "ssa"
    torch.set_num_threads(arguments.threads)
    rows = measure(arguments)
    if arguments.json:
        print(json.dumps({"torch": torch.__version__, "threads": arguments.threads, "compile": arguments.compile, "rows": rows}, indent=2))
        return
    for name, row in rows.items():
        print(f"{name:8} {row['step_ms']:9.1f} ms a step   {row['ratio']:5.2f} of tempera's time")


if __name__ == "__main__":
    main()
