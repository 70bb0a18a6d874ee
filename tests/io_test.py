"""Our safetensors reader and writer against the reference implementation, the safetensors package."""

import json
import subprocess

import pytest
from program import tool

np = pytest.importorskip("numpy")
safetensors = pytest.importorskip("safetensors", reason="the package safetensors is not installed")
torch = pytest.importorskip("torch")
from safetensors.torch import load_file, save_file  # noqa: E402

TOOL = tool("io", "safetensors_tool")

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"{TOOL} is not built (cmake --build build/release --target tests)")

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}


def tool(*arguments):
    done = subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def raw(tensor):
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def sample():
    generator = torch.Generator().manual_seed(7)
    tensors = {}
    for i, (name, dtype) in enumerate(DTYPES.items()):
        for shape in [(3, 5), (), (2, 0, 4), (1, 7, 1)]:
            count = int(np.prod(shape))
            values = torch.randint(0, 2, (count,), generator=generator) if dtype == torch.bool else None
            size = torch.empty((), dtype=dtype).element_size()
            data = values.to(torch.bool) if values is not None else torch.randint(
                0, 256, (count * size,), generator=generator, dtype=torch.uint8).view(dtype)
            tensors[f"block.{i}.{name} \u03c4/\"{shape}\""] = data.reshape(shape)
    return tensors


def expect_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert raw(found[name]) == raw(tensor), name


def test_reads_what_the_package_writes(tmp_path):
    tensors = sample()
    path = tmp_path / "a.safetensors"
    save_file(tensors, path, metadata={"format": "pt", "note": "\u00e9 \"x\"\n"})
    listed = json.loads(tool("list", path))
    assert listed["metadata"] == {"format": "pt", "note": "\u00e9 \"x\"\n"}
    assert listed["tensors"].keys() == tensors.keys()
    names = {dtype: name for name, dtype in DTYPES.items()}
    for name, tensor in tensors.items():
        entry = listed["tensors"][name]
        assert entry["dtype"] == names[tensor.dtype]
        assert entry["shape"] == list(tensor.shape)
        assert bytes.fromhex(entry["bytes"]) == raw(tensor), name


def test_package_reads_what_we_write(tmp_path):
    tensors = sample()
    save_file(tensors, tmp_path / "a.safetensors", metadata={"format": "pt"})
    tool("copy", tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    expect_same(load_file(tmp_path / "b.safetensors"), tensors)
    with safetensors.safe_open(tmp_path / "b.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_files_are_equal_byte_for_byte(tmp_path):
    save_file(sample(), tmp_path / "a.safetensors", metadata={"format": "pt"})
    tool("copy", tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_package_reads_our_shards(tmp_path):
    tensors = sample()
    save_file(tensors, tmp_path / "a.safetensors", metadata={"format": "pt"})
    folder = tmp_path / "model"
    folder.mkdir()
    tool("shard", tmp_path / "a.safetensors", folder, 300)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shards = sorted(set(index["weight_map"].values()))
    assert len(shards) > 2
    found = {}
    for shard in shards:
        part = load_file(folder / shard)
        assert {index["weight_map"][name] for name in part} == {shard}
        found.update(part)
    expect_same(found, tensors)
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in tensors.values())
    assert index["metadata"]["total_parameters"] == sum(t.numel() for t in tensors.values())
    assert json.loads(tool("list", folder)) == json.loads(tool("list", tmp_path / "a.safetensors"))


@pytest.mark.parametrize("json_text, data", [
    ('{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}}', 1),
    ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', 2),
    ('{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}', 3),
    ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 3),
    ('{"a":{"dtype":"Q9","shape":[1],"data_offsets":[0,1]}}', 1),
    ('{"a":1}', 0),
])
def test_refuses_what_the_package_refuses(tmp_path, json_text, data):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(len(json_text).to_bytes(8, "little") + json_text.encode() + bytes(data))
    with pytest.raises(safetensors.SafetensorError):
        load_file(path)
    done = subprocess.run([TOOL, "list", path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert str(path) in done.stderr
