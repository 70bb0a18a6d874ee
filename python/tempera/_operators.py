"""The attention operator."""

from typing import Any, NamedTuple, Optional, Sequence, Union, overload

import torch

from . import _library  # noqa: F401  the operators are there when this module is


class Recipe(NamedTuple):
    """a = s * (c + tanh(<w, gelu(source)>) + g * log n) per head and row; every member is optional.

    source: (B, heads, rows, size), by default the operand itself; w: (heads, size); g, c, s: (heads).
    """

    source: Optional[torch.Tensor] = None
    w: Optional[torch.Tensor] = None
    g: Optional[torch.Tensor] = None
    c: Optional[torch.Tensor] = None
    s: Optional[torch.Tensor] = None

    def rows(self, operand: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        """The values (B, heads, rows), as the kernel computes them from an operand (B, heads, rows, size) and n (B, rows)."""
        type = torch.float64 if operand.dtype == torch.float64 else torch.float32
        total: torch.Tensor | float = 0.0
        if self.c is not None:
            total = total + self.c.to(type)[:, None]
        if self.w is not None:
            source = operand if self.source is None else self.source
            active = torch.nn.functional.gelu(source.to(type))
            total = total + torch.tanh((active * self.w.to(type)[:, None]).sum(-1))
        if self.g is not None:
            total = total + self.g.to(type)[:, None] * n.clamp_min(1).to(type).log()[:, None]
        rows = total if self.s is None else total * self.s.to(type)[:, None]
        return torch.as_tensor(rows).expand(operand.shape[:-1])


class AttentionResult(NamedTuple):
    """What `want` asked for; None elsewhere."""

    out: torch.Tensor
    lse: Optional[torch.Tensor] = None
    max: Optional[torch.Tensor] = None
    entropy: Optional[torch.Tensor] = None
    head_max: Optional[torch.Tensor] = None


@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, want: tuple[()] = ..., **options: Any) -> torch.Tensor: ...
@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, want: Sequence[str], **options: Any) -> AttentionResult: ...
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, q_recipe: Optional[Recipe] = None, k_recipe: Optional[Recipe] = None,
              v_recipe: Optional[Recipe] = None, want: Sequence[str] = (), **options: Any) -> Union[torch.Tensor, AttentionResult]:
    """softmax(cap(scale * a_q a_k <q, k> + bias) * post) (a_v v), masked last, in one pass, with gradients.

    q: (B, H, Tq, D), k: (B, Hkv, Tk, D), v: (B, Hkv, Tk, Dv); Hkv divides H. float32, bfloat16 or float64
    (float64 is computed by a slow reference).

    Row scales (inverse temperatures: > 1 sharpens)
        a_q, a_k, a_v: broadcast to (B, H, Tq), (B, Hkv, Tk), (B, Hkv, Tk).
        q_recipe, k_recipe, v_recipe: a `Recipe` each, computed inside the pass and multiplied to them.
        key_counts: (B, Tk), n of the key rows; needed by k and v recipes with g outside self-attention.
    Logits
        scale: float, default 1 / sqrt(D). bias: (1 or B, 1 or H, Tq, Tk). cap: float, 0 for none.
        post: broadcasts to (B, H, Tq). sinks: (H).
    Mask
        causal: bool. window: int >= 1, |query - key| < window. query_offset: position of query 0 among the keys,
        by default Tk - Tq if causal, else 0. documents: (B, n) int64 lengths that sum to Tq, padded with 0.
        key_documents: likewise, in cross-attention. key_start, key_end: (B), keys outside are padding; or (B, Tq), the keys
        that each row sees.
    dropout, seed: of the probabilities; the same seed drops the same ones.
    want: any of "lse", "max", "entropy", "head_max".

    Returns `out`, (B, H, Tq, Dv), or with `want` an `AttentionResult`. Gradients flow through out and lse.

    >>> q, k, v = torch.zeros(3, 1, 2, 4, 8).unbind(0)                # zeros: every row spreads evenly over the keys it sees
    >>> result = tempera.attention(q, k, v, causal=True, a_q=torch.full((1, 2, 1), 1.5), want=["entropy"])
    >>> tuple(result.out.shape), [round(x, 2) for x in result.entropy[0, 0].tolist()]
    ((1, 2, 4, 8), [0.0, 0.69, 1.1, 1.39])
    """
    unknown = set(want) - set(AttentionResult._fields[1:])
    if unknown:
        raise ValueError(f"want: {sorted(unknown)} given, any of {AttentionResult._fields[1:]} expected")
    for name, operand, recipe in (("q", q, q_recipe), ("k", k, k_recipe), ("v", v, v_recipe)):
        for field, value in (recipe or Recipe())._asdict().items():
            options[f"{name}_{field}"] = None if value is operand else value
    wants = {f"want_{name}": name in want for name in ("max", "entropy", "head_max")}
    results: list[torch.Tensor] = torch.ops.tempera.attention(q, k, v, **options, **wants)
    if not want:
        return results[0]
    if "lse" in want and results[1].dim() != 3:
        raise RuntimeError(f"want: 'lse' is not available on {q.device.type}, where attention is composed of torch's own"
                           " operators; compute on the CPU, or do without it")
    given = dict(zip(AttentionResult._fields[1:], results[1:]))
    return AttentionResult(results[0], **{name: given[name] for name in want})
