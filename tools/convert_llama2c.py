#!/usr/bin/env python3
"""Turns a checkpoint of llama2.c into a Hugging Face folder that Tempera and transformers read.

    tools/convert_llama2c.py stories260K.bin tok512.model OUT

The first file is of the project's version 0: seven integers, then the weights in float32. The tokenizer is the
sentencepiece model that it was trained with. OUT must not be there yet.
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import struct
import sys

import numpy
from safetensors.numpy import save_file

HEADER = struct.Struct("<7i")
NAMES = ("dim", "hidden", "layers", "heads", "kv_heads", "vocabulary", "length")


class BadFile(Exception):
    """The file is not what it should be; the text says why."""


def read_header(data, path):
    if len(data) < HEADER.size:
        raise BadFile(f"{path}: {len(data)} bytes; a checkpoint begins with {HEADER.size} bytes of sizes")
    sizes = dict(zip(NAMES, HEADER.unpack_from(data)))
    tied = sizes["vocabulary"] > 0  # a negative one says that the output has weights of its own
    sizes["vocabulary"] = abs(sizes["vocabulary"])
    fits = all(0 < value <= 1 << 20 for value in sizes.values())
    if not fits or sizes["dim"] % sizes["heads"] or sizes["heads"] % sizes["kv_heads"] or sizes["dim"] // sizes["heads"] % 2:
        raise BadFile(f"{path}: no checkpoint of llama2.c (version 0); its sizes would be {sizes}")
    return sizes, tied


def apart(weight, head_size):
    """Rows of q or k whose partners in the rotation stand side by side; here they stand half a head apart."""
    rows, columns = weight.shape
    return weight.reshape(rows // head_size, head_size // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def read_weights(data, path):
    sizes, tied = read_header(data, path)
    dim, hidden, layers = sizes["dim"], sizes["hidden"], sizes["layers"]
    head_size = dim // sizes["heads"]
    kv_dim = head_size * sizes["kv_heads"]
    at = HEADER.size

    def take(*shape):
        nonlocal at
        count = math.prod(shape)
        if at + 4 * count > len(data):
            raise BadFile(f"{path}: {len(data)} bytes; the weights of {sizes} need more")
        values = numpy.frombuffer(data, "<f4", count, at).reshape(shape)
        at += 4 * count
        return values

    tensors = {"model.embed_tokens.weight": take(sizes["vocabulary"], dim)}
    # All layers of a kind stand together.
    for name, shape in [("input_layernorm", (dim,)), ("self_attn.q_proj", (dim, dim)), ("self_attn.k_proj", (kv_dim, dim)),
                        ("self_attn.v_proj", (kv_dim, dim)), ("self_attn.o_proj", (dim, dim)),
                        ("post_attention_layernorm", (dim,)), ("mlp.gate_proj", (hidden, dim)),
                        ("mlp.down_proj", (dim, hidden)), ("mlp.up_proj", (hidden, dim))]:
        for layer, weight in enumerate(take(layers, *shape)):
            turned = name.endswith(("q_proj", "k_proj"))
            tensors[f"model.layers.{layer}.{name}.weight"] = apart(weight, head_size) if turned else weight
    tensors["model.norm.weight"] = take(dim)
    take(2, sizes["length"], head_size // 2)  # cosines and sines, which readers compute
    if not tied:
        tensors["lm_head.weight"] = take(sizes["vocabulary"], dim)
    if at != len(data):
        raise BadFile(f"{path}: {len(data)} bytes; the weights of {sizes} end at {at}")
    return sizes, tied, {name: numpy.ascontiguousarray(tensor) for name, tensor in tensors.items()}


def config_of(sizes, tied):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
            "hidden_size": sizes["dim"], "intermediate_size": sizes["hidden"], "num_hidden_layers": sizes["layers"],
            "num_attention_heads": sizes["heads"], "num_key_value_heads": sizes["kv_heads"],
            "vocab_size": sizes["vocabulary"], "max_position_embeddings": sizes["length"], "rope_theta": 10000.0,
            "tie_word_embeddings": tied, "attention_bias": False, "mlp_bias": False, "bos_token_id": 1,
            "eos_token_id": 2, "dtype": "float32"}


def convert(checkpoint, tokenizer, out):
    sizes, tied, tensors = read_weights(checkpoint.read_bytes(), checkpoint)
    part = out.with_name(out.name + ".part")
    part.mkdir(parents=True)
    try:
        save_file(tensors, part / "model.safetensors", {"format": "pt"})
        (part / "config.json").write_text(json.dumps(config_of(sizes, tied), indent=2) + "\n")
        (part / "tokenizer_config.json").write_text(json.dumps({
            "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
            "add_bos_token": True, "add_eos_token": False, "model_max_length": sizes["length"]}, indent=2) + "\n")
        shutil.copyfile(tokenizer, part / "tokenizer.model")
        os.rename(part, out)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.out.exists():
        sys.exit(f"{arguments.out} is there already; give another folder")
    try:
        convert(arguments.checkpoint, arguments.tokenizer, arguments.out)
    except (BadFile, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
