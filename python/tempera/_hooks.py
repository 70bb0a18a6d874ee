"""How temperatures reach a transformers model: hooks on its attention modules.

The rows' visible keys and positions come from the mask, once for a pass, and travel to the layers among the keyword arguments, so
that gradient checkpointing sees them again. Every attention makes its scales from its own input. With the attention implementation
"tempera" they go into the kernel; with any other one the projections' results, or those of the QK-norm, are multiplied with them.
"""

import functools
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor, nn

from ._scales import Rows, Scale, Scales, Source, Temperature

ROWS = "tempera_rows"
SOURCE = "tempera_source"  # the rows that cross-attentions read


class Parts(NamedTuple):
    """What an attention module calls its parts."""

    projections: tuple[str, ...]  # three, or one for all
    by_head: bool                 # of one: q, k, v of a head, then of the next; else all of q, all of k, all of v
    norms: Optional[tuple[str, str]]
    heads: int
    kv_heads: int
    size: int


class Pending:
    """A pass through one attention: the scales of its rows, and the raw projections where the kernel reads them."""

    def __init__(self, scales: Scales, rows: Rows, source: Optional[Source], fused: bool, cached: bool) -> None:
        self.scales, self.fused, self.cached, self.crosses = scales, fused, cached, source is not None
        self._n = {side: rows.n if source is None or side == "q" else source.rows.n for side in "qkv"}
        self.q_raw: Optional[Tensor] = None
        self.k_raw: Optional[Tensor] = None
        self.v_raw: Optional[Tensor] = None
        self.q_values: Optional[Tensor] = None
        self.k_values: Optional[Tensor] = None

    def in_kernel(self, side: str) -> bool:
        """What goes into a cache has its scale already."""
        return self.fused and (side == "q" or not self.cached)

    def values(self, side: str, raw: Tensor) -> Tensor:
        """The scale (B, heads, rows) of a side that has one, from its raw projection (B, heads, rows, size)."""
        scale: Scale = getattr(self.scales, side)
        return scale.values(raw, self._n[side])


# -- of the whole model ------------------------------------------------------------------------------------------------------------


def _counted(mask: Tensor, causal: bool, length: int) -> tuple[Tensor, Tensor]:
    """n and position from a mask (B, keys) of zeros and ones."""
    real = mask != 0
    index = real.long().cumsum(1)[:, -length:]
    position = torch.where(real[:, -length:], index - 1, -1)
    n = index if causal else real.long().sum(1, keepdim=True).expand(-1, length)
    return n, position


def rows_of(mask: Any, position_ids: Optional[Tensor], past: Any, tokens: Optional[Tensor], shape: tuple[int, int], causal: bool,
            device: torch.device) -> Rows:
    """What a model's arguments say of the rows (B, T)."""
    batch, length = shape
    if isinstance(mask, dict):
        mask = mask.get("full_attention", next(iter(mask.values())))
    if mask is not None and mask.dim() == 2:
        n, position = _counted(mask, causal, length)
    elif mask is not None:
        visible = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        n = visible[:, 0].long().sum(-1)
        position = n - 1 if causal else torch.arange(length, device=device).expand(batch, length)
    else:
        if position_ids is None or not causal:
            start = past.get_seq_length() if past is not None else 0
            position = torch.arange(length, device=device)[None] + start
        else:
            position = position_ids
        position = position.expand(batch, length)
        n = position + 1 if causal else torch.full_like(position, length)
    return Rows(n, position, tokens)


def model_hook(names: list[str], causal: bool) -> Any:
    """A forward pre-hook of the model without its head; `names` are those of its positional arguments."""
    return functools.partial(_before_model, names, causal)


def _before_model(names: list[str], causal: bool, module: nn.Module, args: tuple[Any, ...],
                  kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    given = {**dict(zip(names, args)), **kwargs}
    tokens = given.get("input_ids")
    given_rows: Tensor = tokens if tokens is not None else given["inputs_embeds"]
    rows = rows_of(given.get("attention_mask"), given.get("position_ids"), given.get("past_key_values"), tokens,
                   (given_rows.shape[0], given_rows.shape[1]), causal, given_rows.device)
    added = {ROWS: rows}
    source = given.get("encoder_hidden_states")
    if source is not None:
        added[SOURCE] = rows_of(given.get("encoder_attention_mask"), None, None, None, (source.shape[0], source.shape[1]), False,
                                source.device)
    return args, {**kwargs, **added}


# -- of one attention --------------------------------------------------------------------------------------------------------------


class _States:
    """What a method keeps of the rows in a cache, by layer and whether it is a cross-attention's: (B, rows, width)."""

    def __init__(self, cache: Any) -> None:
        self.layers: dict[tuple[int, bool], Tensor] = {}
        for name in ("reorder_cache", "batch_repeat_interleave", "batch_select_indices"):
            if hasattr(cache, name):
                setattr(cache, name, functools.partial(self._follow, name, getattr(cache, name)))

    def _follow(self, name: str, original: Any, argument: Any) -> Any:
        for layer, state in self.layers.items():
            repeat = name == "batch_repeat_interleave"
            self.layers[layer] = state.repeat_interleave(argument, 0) if repeat else state[argument]
        return original(argument)

    def last(self, layer: tuple[int, bool], length: int) -> Optional[Tensor]:
        if length == 0:
            return None
        state = self.layers.get(layer)
        if state is None or state.shape[1] < length:
            raise ValueError(f"the cache has {length} rows of layer {layer[0]} and not what the temperature keeps of them: it was filled by"
                             " another model, or in another way than by this model's forward pass")
        return state[:, length - 1]

    def append(self, layer: tuple[int, bool], length: int, rows: Tensor) -> None:
        before = self.layers.get(layer)
        self.layers[layer] = rows if length == 0 or before is None else torch.cat([before[:, :length], rows], 1)


def _states_of(cache: Any) -> _States:
    states = getattr(cache, "tempera_states", None)
    if states is None:
        states = _States(cache)
        cache.tempera_states = states
    return states


def _source_of(kwargs: dict[str, Any], rows: Rows, cache: Any, layer: int) -> Source:
    """What a cross-attention makes its keys of: nothing where the cache has them already."""
    x = kwargs["key_value_states"]
    if cache is not None and cache.is_updated.get(layer):
        return Source(x[:, :0], Rows(rows.n[:, :0], rows.position[:, :0]))
    return Source(x, rows)


def _before(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    temperature: Temperature = module.temperature
    rows, source_rows = kwargs.pop(ROWS, None), kwargs.pop(SOURCE, None)
    if rows is None:
        raise RuntimeError("an attention with a temperature was called without its model, which says what every row can see; "
                           "call the model")
    x = args[0] if args else kwargs["hidden_states"]
    cache = kwargs.get("past_key_values", kwargs.get("layer_past"))  # the latter is GPT-NeoX's word
    source = None
    if temperature.crosses:
        source = _source_of(kwargs, source_rows, cache, module.layer_idx)
        rows = rows._replace(n=source_rows.n[:, :1].expand_as(rows.position))
    states = _states_of(cache) if cache is not None and temperature.keeps_state else None
    place, length = (module.layer_idx, temperature.crosses), 0
    if cache is not None and states is not None:
        # The layer's self-attention, which comes first, has added its rows.
        length = int(cache.get_seq_length(module.layer_idx)) - (x.shape[1] if temperature.crosses else 0)
    past = states.last(place, length) if states is not None else None
    if temperature.keeps_state and past is None:
        past = x.new_zeros(x.shape[0], temperature.state_width, dtype=torch.float64)
    scales = temperature(x, rows, past, source)
    if states is not None:
        states.append(place, length, scales.state)
    if temperature.window is not None:
        rows = rows._replace(n=rows.n.clamp_max(temperature.window))
    fused = module.config._attn_implementation == "tempera"
    temperature.pending = Pending(scales, rows, source, fused, cache is not None)
    return args, kwargs


def _after(module: Any, args: tuple[Any, ...], output: Any) -> None:
    module.temperature.pending = None


def scaled(out: Tensor, values: Tensor) -> Tensor:
    """out (B, T, heads, size) or (B, T, heads * size) with its rows multiplied by values (B, heads, T)."""
    rows = values.transpose(1, 2)[..., None]
    product = out.unflatten(-1, (values.shape[1], -1)) * rows if out.dim() == 3 else out * rows
    return product.reshape(out.shape).to(out.dtype)


def _apply(pending: Pending, side: str, out: Tensor, heads: int, has_norm: bool) -> Tensor:
    """One operand's projection (B, T, heads * size), scaled unless the kernel or a norm's hook will do it."""
    if getattr(pending.scales, side) is None:
        return out
    raw = out.unflatten(-1, (heads, -1)).transpose(1, 2)
    if pending.in_kernel(side):
        setattr(pending, f"{side}_raw", raw)
        return out
    values = pending.values(side, raw)
    if has_norm:
        setattr(pending, f"{side}_values", values)
        return out
    return scaled(out, values)


# The hooks are these functions with what they need beforehand, not functions inside others: a copy of a model copies it, too.


def _after_projection(temperature: Temperature, parts: Parts, side: str, module: nn.Module, args: tuple[Any, ...], out: Tensor) -> Tensor:
    pending = temperature.pending
    heads = parts.heads if side == "q" else parts.kv_heads
    return out if pending is None else _apply(pending, side, out, heads, parts.norms is not None and side != "v")


def _after_joined(temperature: Temperature, parts: Parts, module: nn.Module, args: tuple[Any, ...], out: Tensor) -> Tensor:
    pending = temperature.pending
    if pending is None:
        return out
    if parts.by_head:
        q, k, v = (part.flatten(2) for part in out.unflatten(-1, (parts.heads, 3, parts.size)).unbind(3))
    else:
        q, k, v = out.split([parts.heads * parts.size, parts.kv_heads * parts.size, parts.kv_heads * parts.size], -1)
    new = (_apply(pending, "q", q, parts.heads, False), _apply(pending, "k", k, parts.kv_heads, False),
           _apply(pending, "v", v, parts.kv_heads, False))
    if new[0] is q and new[1] is k and new[2] is v:
        return out
    if parts.by_head:
        return torch.stack([part.unflatten(-1, (parts.heads, parts.size)) for part in new], 3).flatten(2)
    return torch.cat(new, -1)


def _after_norm(temperature: Temperature, side: str, module: nn.Module, args: tuple[Any, ...], out: Tensor) -> Tensor:
    values = None if temperature.pending is None else getattr(temperature.pending, f"{side}_values")
    return out if values is None else scaled(out, values)


def install(attention: nn.Module, temperature: Temperature, parts: Parts) -> None:
    """Gives an attention module of transformers a temperature."""
    attention.temperature = temperature
    attention.register_forward_pre_hook(_before, with_kwargs=True)
    attention.register_forward_hook(_after)
    if len(parts.projections) == 1:
        attention.get_submodule(parts.projections[0]).register_forward_hook(functools.partial(_after_joined, temperature, parts))
    else:
        for side, name in zip("qkv", parts.projections):
            attention.get_submodule(name).register_forward_hook(functools.partial(_after_projection, temperature, parts, side))
    for side, name in zip("qk", parts.norms or ()):
        attention.get_submodule(name).register_forward_hook(functools.partial(_after_norm, temperature, side))
