"""The attention implementation "tempera" of transformers: our kernels, with the temperatures computed inside them."""

import contextlib
import contextvars
from typing import Any, Callable, Iterator, Optional

import torch
from torch import Tensor, nn

from ._hooks import Pending
from ._operators import Recipe

# Up to so many rows the kernel that splits its work over the keys is the quicker one.
_DECODE_ROWS = 16

# Set while something looks at the attentions: called with the module and what one of them computed.
Observer = Callable[[nn.Module, dict[str, Any]], None]
_observer: contextvars.ContextVar[Optional[Observer]] = contextvars.ContextVar("tempera_observer", default=None)


@contextlib.contextmanager
def observed(observer: Observer) -> Iterator[None]:
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def _in_one_piece(mask: Tensor) -> bool:
    """Whether every row of a mask (B, keys) is padding, then keys, then padding."""
    return bool(((mask[:, 1:] != mask[:, :-1]).sum(1) + mask[:, 0].long() + mask[:, -1].long() <= 2).all())


def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: Any = 0, attention_mask: Optional[Tensor] = None,
         allow_is_causal_skip: bool = True, allow_is_bidirectional_skip: bool = False, **kwargs: Any) -> Optional[Tensor]:
    """None or the padding (B, keys) where the kernel can say the rest; else a mask of all pairs."""
    from transformers.masking_utils import sdpa_mask

    plain = allow_is_bidirectional_skip or (allow_is_causal_skip and kv_length + kv_offset == q_length + q_offset)
    if plain and attention_mask is None:
        return None
    if plain and not torch.compiler.is_compiling() and attention_mask is not None:
        seen = attention_mask[:, -kv_length:] != 0
        if seen.shape[1] == kv_length and _in_one_piece(seen):
            return seen
    return sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, attention_mask=attention_mask, allow_is_causal_skip=False,
                     allow_is_bidirectional_skip=False, **kwargs)


def _limits(attention_mask: Optional[Tensor], causal: bool, window: Optional[int]) -> dict[str, Any]:
    """The mask in the words of the operators."""
    if attention_mask is not None and attention_mask.dim() == 4:
        if attention_mask.dtype != torch.bool:
            return {"bias": attention_mask}
        return {"bias": torch.where(attention_mask, 0.0, -torch.inf)}
    limits: dict[str, Any] = {"causal": causal, "window": window}
    if attention_mask is not None:
        real = attention_mask.to(torch.int8)
        limits["key_start"] = real.argmax(1)
        limits["key_end"] = attention_mask.shape[1] - real.flip(1).argmax(1)
    return limits


def _temperatures(pending: Optional[Pending], counts: bool) -> dict[str, Any]:
    """The scales that the kernel is to apply, in the words of the operators. counts: it knows how many keys every row can see, those of
    the keys among them."""
    words: dict[str, Any] = {}
    if pending is None or not pending.fused:
        return words
    for side in "qkv":
        scale = getattr(pending.scales, side)
        if scale is None or not pending.in_kernel(side):
            continue
        if not counts:
            words[f"a_{side}"] = pending.values(side, getattr(pending, f"{side}_raw"))
            continue
        words[f"a_{side}"] = scale.rows
        if scale.recipe is not None:
            recipe: Recipe = scale.recipe
            words |= {f"{side}_w": recipe.w, f"{side}_g": recipe.g, f"{side}_c": recipe.c, f"{side}_s": recipe.s}
            if recipe.w is not None:
                words[f"{side}_source"] = getattr(pending, f"{side}_raw")
    return words


def _one_type(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Autocast leaves some of them in float32 where rotation widened them."""
    type = torch.get_autocast_dtype(q.device.type) if torch.is_autocast_enabled(q.device.type) else v.dtype
    return q.to(type), k.to(type), v.to(type)


def forward(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Optional[Tensor] = None, dropout: float = 0.0,
            scaling: Optional[float] = None, is_causal: Optional[bool] = None, sliding_window: Optional[int] = None,
            softcap: Optional[float] = None, position_bias: Optional[Tensor] = None, s_aux: Optional[Tensor] = None,
            **kwargs: Any) -> tuple[Tensor, None]:
    """An attention function as transformers calls it: (B, heads, T, size) in, (B, T, heads, size) out."""
    temperature = getattr(module, "temperature", None)
    pending: Optional[Pending] = None if temperature is None else temperature.pending
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    counts = (attention_mask is None or attention_mask.dim() == 2) and not (pending is not None and pending.crosses)
    query, key, value = _one_type(query, key, value)
    words: dict[str, Any] = {"scale": scaling, "cap": softcap or 0.0, **_limits(attention_mask, causal, sliding_window),
                             **_temperatures(pending, counts)}
    if s_aux is not None:
        words["sinks"] = s_aux
    if position_bias is not None:
        words["bias"] = position_bias + words["bias"] if "bias" in words else position_bias
    observer = None if torch.compiler.is_compiling() else _observer.get()
    if observer is not None:
        results = torch.ops.tempera.attention(query, key, value, **words, want_max=True, want_entropy=True)
        observer(module, {"q": query, "k": key, "words": words, "results": results, "pending": pending})
    elif _can_decode(query, words, causal, dropout):
        keys = torch.full((key.shape[0],), key.shape[2], dtype=torch.int32, device=key.device)
        results = torch.ops.tempera.decode(query, key.contiguous(), value.contiguous(), keys, **{k: v for k, v in words.items() if k != "key_end"})
    else:
        if dropout > 0:
            words |= {"dropout": dropout, "seed": int(torch.randint(2**62, ()))}
        results = torch.ops.tempera.attention(query, key, value, **words)
    return results[0].transpose(1, 2), None


def _can_decode(query: Tensor, words: dict[str, Any], causal: bool, dropout: float) -> bool:
    if torch.compiler.is_compiling():  # and asks no length, which would be a limit of what is compiled
        return False
    return (query.shape[2] <= _DECODE_ROWS and causal and not torch.is_grad_enabled() and dropout == 0 and "bias" not in words
            and query.dtype != torch.float64
            and all(not name.startswith(("k_", "v_", "a_k", "a_v")) for name in words))


def register() -> None:
    """Makes attn_implementation="tempera" known to transformers."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register("tempera", forward)
    AttentionMaskInterface.register("tempera", mask)
