"""The operators on a GPU against the CPU's reference in double precision: our kernels, and where the library has none a
composition of torch's own operators."""

import sys
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("there is no GPU that torch can use", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
try:
    import tempera
except ImportError as error:
    pytest.skip(f"libtempera_torch.so is missing: {error}", allow_module_level=True)

B, H, HKV, T, D, DV = 2, 4, 2, 70, 64, 32


def has_kernels():
    """Whether the library was built with the CUDA kernels; a cap needs them."""
    q = torch.ones(1, 1, 8, 8, device="cuda")
    try:
        torch.ops.tempera.attention(q, q, q, cap=1.0)
    except RuntimeError:
        return False
    return True


KERNELS = has_kernels()
# By the norm of the difference over the norm of what is expected.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=["float32", "bfloat16"])


def numbers(*sizes, seed=0, spread=1.0, around=0.0):
    generator = torch.Generator().manual_seed(seed + 1000 * len(sizes) + sum(sizes))
    return around + spread * torch.randn(*sizes, generator=generator)


def operands(rows=T, keys=T, kv_heads=HKV, value=DV):
    return {"q": numbers(B, H, rows, D, seed=1), "k": numbers(B, kv_heads, keys, D, seed=2),
            "v": numbers(B, kv_heads, keys, value, seed=3)}


def recipe(prefix, heads, size):
    head = lambda seed, around: numbers(heads, seed=seed, spread=0.2, around=around)
    return {f"{prefix}_w": numbers(heads, size, seed=4, spread=0.1), f"{prefix}_g": head(5, 0),
            f"{prefix}_c": head(6, 1), f"{prefix}_s": head(7, 1)}


# Some below 0.
SCALES = dict(a_q=numbers(B, H, T, spread=0.5, around=0.8), a_k=numbers(1, HKV, T, spread=0.5, around=0.8),
              a_v=numbers(HKV, 1))
RECIPES = {**recipe("q", H, D), **recipe("k", HKV, D), **recipe("v", HKV, DV)}
PADDING = dict(key_start=torch.tensor([9, 0]), key_end=torch.tensor([T, 40]))

# What differs from operands() stands in the same dict.
CASES = {
    "bidirectional": {},
    "causal": dict(causal=True),
    "as many key heads": dict(**operands(kv_heads=H, value=D), causal=True),
    "one key head": dict(**operands(kv_heads=1, value=D), causal=True),
    "scale": dict(causal=True, scale=0.3),
    "scales": dict(causal=True, **SCALES),
    "scales of zero": dict(a_q=torch.zeros(B, H, T), a_v=numbers(B, HKV, T)),
    "recipes": dict(causal=True, **RECIPES),
    "recipes and scales": dict(**SCALES, **RECIPES, q_source=numbers(B, H, T, D, seed=8)),
    "window": dict(causal=True, window=7, **recipe("q", H, D)),
    "window of both sides": dict(window=5, **SCALES),
    "padding": dict(**PADDING, **SCALES),
    "causal and padding": dict(causal=True, **PADDING, **RECIPES),
    "documents": dict(causal=True, documents=torch.tensor([[30, 40, 0], [1, 60, 9]]), **RECIPES),
    "bias": dict(bias=numbers(1, H, T, T), **SCALES),
    "bias of a sequence": dict(bias=numbers(B, 1, T, T), causal=True, **PADDING),
    "cross": dict(**operands(rows=21), key_counts=torch.arange(B * T).view(B, T), **recipe("v", HKV, DV)),
    "later rows": dict(**operands(rows=21), causal=True, a_q=numbers(B, H, 21)),
    "rows that see nothing": dict(**operands(rows=T, keys=21), causal=True),
}
KERNEL_CASES = {
    "cap": dict(causal=True, cap=5.0),
    "cap and post": dict(cap=5.0, post=numbers(T, around=1.0, spread=0.2), **SCALES),
    "sinks": dict(causal=True, sinks=numbers(H), **RECIPES),
    "dropout": dict(causal=True, dropout=0.2, seed=7),
    "everything": dict(causal=True, window=20, cap=8.0, sinks=numbers(H), bias=numbers(1, H, T, T),
                       documents=torch.tensor([[30, 40, 0], [1, 60, 9]]), **SCALES, **RECIPES),
}
REFUSED = {
    "cap": dict(cap=5.0),
    "post": dict(post=torch.ones(T)),
    "sinks": dict(sinks=torch.ones(H)),
    "dropout": dict(dropout=0.1),
    "want_head_max": dict(want_head_max=True),
}


def placed(options, dtype, device):
    """The options in the dtype that they have in use, on a device; there in double precision where that is the CPU."""
    def place(name, value):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value.to(device) if isinstance(value, torch.Tensor) else value
        rounded = value.to(dtype) if name in ("q", "k", "v", "q_source") else value
        return rounded.to(torch.float64 if device == "cpu" else rounded.dtype).to(device)

    return {name: place(name, value) for name, value in options.items()}


def run(options, dtype, device):
    """out, and the gradients of whatever has them, by name."""
    given = placed(options, dtype, device)
    for value in given.values():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            value.requires_grad_()
    q, k, v = (given.pop(name) for name in ("q", "k", "v"))
    out = torch.ops.tempera.attention(q, k, v, **given)[0]
    weight = numbers(*out.shape, seed=9).to(dtype)
    out.backward(weight.to(out.dtype).to(device))
    leaves = {"q": q, "k": k, "v": v, **given}
    return {"out": out.detach(), **{name: leaf.grad for name, leaf in leaves.items()
                                    if isinstance(leaf, torch.Tensor) and leaf.requires_grad}}


def difference(given, expected):
    error = (given.cpu().double() - expected).norm() / expected.norm().clamp_min(1e-6)
    return error.item()


@DTYPES
@pytest.mark.parametrize("name", {**CASES, **KERNEL_CASES})
def test_agrees_with_the_reference(name, dtype):
    if name in KERNEL_CASES and not KERNELS:
        pytest.skip("the library is built without CUDA kernels")
    options = {**operands(), **{**CASES, **KERNEL_CASES}[name]}
    given = run(options, dtype, "cuda")
    expected = run(options, dtype, "cpu")
    assert given.keys() == expected.keys()
    assert given["out"].dtype == dtype and given["out"].is_cuda
    for part in expected:
        # The numbers of a head have gradients that are small sums of large terms.
        tolerance = TOLERANCE[dtype] * (3 if part[1:] in ("_w", "_g", "_c", "_s") else 1)
        assert difference(given[part], expected[part]) <= tolerance, part


def test_double_precision():
    options = {**operands(), **CASES["recipes and scales"], "causal": True}
    q, k, v = (options.pop(name).double() for name in ("q", "k", "v"))
    options = {name: value.double() if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    on_gpu = {name: value.cuda() if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    given = torch.ops.tempera.attention(q.cuda(), k.cuda(), v.cuda(), **on_gpu)[0]
    assert difference(given, torch.ops.tempera.attention(q, k, v, **options)[0]) < 1e-12


@DTYPES
def test_statistics_agree_with_the_reference(dtype):
    results = []
    for device in ("cuda", "cpu"):
        given = placed({**operands(), **RECIPES}, dtype, device)
        first = [given.pop(name) for name in ("q", "k", "v")]
        wants = dict(want_max=True, want_entropy=True, want_head_max=KERNELS)
        results.append(torch.ops.tempera.attention(*first, causal=True, **wants, **given))
    for ours, reference in zip(*results):
        assert ours.shape == reference.shape
        assert reference.numel() == 0 or difference(ours, reference) <= TOLERANCE[dtype]


@pytest.mark.skipif(KERNELS, reason="the library has CUDA kernels")
@pytest.mark.parametrize("name", REFUSED)
def test_names_what_the_composition_cannot_do(name):
    options = placed({**operands(), **REFUSED[name]}, torch.float32, "cuda")
    with pytest.raises(RuntimeError, match=rf"{name}.* is not available on this device"):
        torch.ops.tempera.attention(options.pop("q"), options.pop("k"), options.pop("v"), **options)


def test_the_package_refuses_the_normaliser():
    q, k, v = placed(operands(), torch.float32, "cuda").values()
    with pytest.raises(RuntimeError, match="want: 'lse' is not available on cuda"):
        tempera.attention(q, k, v, want=("lse",))
    assert tempera.attention(q, k, v).shape == (B, H, T, DV)


def test_another_device_is_named():
    q, k, v = placed(operands(), torch.float32, "cuda").values()
    with pytest.raises(RuntimeError, match="a_q: on device cpu, and q is on cuda:0"):
        torch.ops.tempera.attention(q, k, v, a_q=torch.ones(T))
    with pytest.raises(RuntimeError, match="k: on device cpu"):
        torch.ops.tempera.attention(q, k.cpu(), v)
    with pytest.raises(RuntimeError, match="documents"):
        torch.ops.tempera.attention(q, k, v, documents=torch.tensor([[T, 1], [T, 0]]).cuda())


@pytest.mark.parametrize("batch, rows, keys", [(0, 5, 5), (2, 0, 5), (2, 5, 0)])
@pytest.mark.parametrize("causal", [False, True])
def test_empty(batch, rows, keys, causal):
    q = torch.ones(batch, H, rows, D, device="cuda", requires_grad=True)
    k = torch.ones(batch, HKV, keys, D, device="cuda", requires_grad=True)
    out = torch.ops.tempera.attention(q, k, k, causal=causal)[0]
    assert out.shape == q.shape and (out == 0).all()
    out.sum().backward()
    assert (q.grad == 0).all() and (k.grad == 0).all()


def peak_bytes(rows, kv_heads, dtype, **options):
    """Of attention and its gradients, beside what is given."""
    make = lambda heads: torch.randn(1, heads, rows, D, device="cuda", dtype=dtype, requires_grad=True)
    q, k, v = make(8), make(kv_heads), make(kv_heads)
    a_q = torch.rand(1, 8, rows, device="cuda", requires_grad=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    torch.ops.tempera.attention(q, k, v, causal=True, a_q=a_q, **options)[0].sum().backward()
    return torch.cuda.max_memory_allocated() - before


@DTYPES
@pytest.mark.parametrize("kv_heads", [8, 2])
def test_no_matrix_of_all_pairs(kv_heads, dtype):
    rows = 8192
    assert peak_bytes(rows, kv_heads, dtype) < 8 * rows * rows // 2


@DTYPES
@pytest.mark.parametrize("mask", ["causal", "documents", "window"])
@pytest.mark.parametrize("kv_heads", [8, 2])
def test_memory_grows_with_the_rows(kv_heads, mask, dtype):
    def peak(rows):
        options = {"documents": dict(documents=torch.tensor([[rows // 3, rows - rows // 3]]).cuda()), "window": dict(window=1000)}
        return peak_bytes(rows, kv_heads, dtype, **options.get(mask, {}))

    assert peak(32768) < 2.2 * peak(16384)
    assert peak(32768) < 2 * 32768 * 32768


def test_compiles():
    q, k, v = (tensor.requires_grad_() for tensor in placed(operands(), torch.float32, "cuda").values())
    a_q = numbers(B, H, T).cuda()
    attend = lambda q, k, v: tempera.attention(q * 2, k, v, causal=True, a_q=a_q) + 1
    compiled = torch.compile(attend, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(q, k, v), attend(q, k, v))
    compiled(q, k, v).sum().backward()
    assert q.grad is not None


def cache_of(options, paged):
    """The arguments of decode; paged: in blocks of 8 rows, in another order."""
    capacity, block = 48, 8
    given = dict(q=numbers(B, H, 3, D, seed=1), k=numbers(B, HKV, capacity, D, seed=2),
                 v=numbers(B, HKV, capacity, DV, seed=3), lengths=torch.tensor([41, 13], dtype=torch.int32),
                 a_q=numbers(B, H, 3), a_k=numbers(B, HKV, capacity), a_v=numbers(B, HKV, capacity),
                 **recipe("q", H, D), **options)
    if not paged:
        return given
    table = torch.randperm(B * capacity // block, generator=torch.Generator().manual_seed(1)).view(B, -1)
    for name in ("k", "v", "a_k", "a_v"):
        blocks = given[name].unflatten(2, (-1, block)).transpose(1, 2).flatten(0, 1)
        given[name] = torch.empty_like(blocks).index_copy_(0, table.flatten(), blocks)
    return {**given, "block_table": table.to(torch.int32)}


@DTYPES
@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("options", [{}, dict(causal=False), dict(window=5), dict(key_start=torch.tensor([7, 2])),
                                     dict(bias=numbers(1, H, 3, 48)), dict(cap=3.0, sinks=numbers(H))], ids=lambda options: " ".join(options) or "plain")
def test_decode_agrees_with_the_reference(options, paged, dtype):
    if "cap" in options and not KERNELS:
        pytest.skip("the library is built without CUDA kernels")
    results = []
    for device in ("cuda", "cpu"):
        given = placed(cache_of(options, paged), dtype, device)
        first = [given.pop(name) for name in ("q", "k", "v", "lengths")]
        results.append(torch.ops.tempera.decode(*first, **given)[0])
    assert results[0].is_cuda and difference(*results) <= TOLERANCE[dtype]


def test_decode_names_what_it_cannot_do():
    given = placed(cache_of({}, paged=True), torch.float32, "cuda")
    first = [given.pop(name) for name in ("q", "k", "v", "lengths")]
    if not KERNELS:
        with pytest.raises(RuntimeError, match="sinks .* is not available on this device"):
            torch.ops.tempera.decode(*first, **given, sinks=torch.ones(H).cuda())
        with pytest.raises(RuntimeError, match="block 99 given"):
            torch.ops.tempera.decode(*first, **{**given, "block_table": torch.full_like(given["block_table"], 99)})
    with pytest.raises(RuntimeError, match="decode has no gradients"):
        torch.ops.tempera.decode(first[0].requires_grad_(), *first[1:], **given)
