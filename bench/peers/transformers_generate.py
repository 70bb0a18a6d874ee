#!/usr/bin/env python3
"""Prompts and greedy tokens by transformers or llama.cpp, for `tempera bench generate --peers`.

    bench/peers/transformers_generate.py MODEL --program transformers|llama.cpp [--dtype fp32|bf16]

loads MODEL, a folder or a .gguf file, and says how long that took. Then it answers each line
{"prompt": [ids], "tokens": N} with the seconds of the prompt up to the first token, those of the N tokens behind
it, and all of them.
"""

import argparse
import json
import pathlib
import sys
import time


def peak_bytes():
    """Of this program alone: the figure of getrusage begins with the memory of the process that started it."""
    with open("/proc/self/status", encoding="utf-8") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


class Transformers:
    def __init__(self, path, dtype, threads, room):
        import torch
        import transformers

        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(threads)
        self.torch = torch
        self.cache = transformers.DynamicCache
        kind = torch.float32 if dtype == "fp32" else torch.bfloat16
        start = time.perf_counter()
        if path.suffix == ".gguf":
            model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=kind)
        else:
            model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=kind)
        self.model = model.eval()
        self.load_seconds = time.perf_counter() - start

    def start(self):
        self.past = self.cache(config=self.model.config)

    def next(self, tokens):
        """The likeliest token behind those given and all before them."""
        with self.torch.inference_mode():
            ids = self.torch.tensor([tokens])
            out = self.model(ids, past_key_values=self.past, use_cache=True, logits_to_keep=1)
            return int(out.logits[0, -1].argmax())


class LlamaCpp:
    def __init__(self, path, dtype, threads, room):
        import llama_cpp

        start = time.perf_counter()
        self.model = llama_cpp.Llama(
            str(path), n_ctx=room, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        self.load_seconds = time.perf_counter() - start

    def start(self):
        self.model.reset()

    def next(self, tokens):
        self.model.eval(tokens)
        return int(self.model.sample(temp=0.0))


def turn(program, prompt, count):
    program.start()
    start = time.perf_counter()
    tokens = [program.next(prompt)]
    first = time.perf_counter()
    for _ in range(count):
        tokens.append(program.next(tokens[-1:]))
    return {"prompt_seconds": first - start, "generate_seconds": time.perf_counter() - first, "tokens": tokens}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    programs = {"transformers": Transformers, "llama.cpp": LlamaCpp}
    parser.add_argument("--program", choices=programs, default="transformers")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--room", type=int, default=4096, help="tokens that a sequence may have")
    arguments = parser.parse_args()
    program = programs[arguments.program](arguments.model, arguments.dtype, arguments.threads, arguments.room)
    print(json.dumps({"load_seconds": program.load_seconds}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = turn(program, asked["prompt"], asked["tokens"])
        answer["peak_bytes"] = peak_bytes()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
