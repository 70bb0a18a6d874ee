"""Tiny models of transformers for the tests of the Python package: every family that takes a temperature there."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

SHARED = dict(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
ENCODER = {"hidden_act": "gelu", "type_vocab_size": 2}

CONFIGS = {
    "llama": dict(SHARED, rope_theta=10000.0),
    "mistral": dict(SHARED, sliding_window=6),
    "qwen2": dict(SHARED),
    "qwen3": dict(SHARED, head_dim=8),
    "granite": dict(SHARED, attention_multiplier=0.3, embedding_multiplier=2.0, residual_multiplier=0.5, logits_scaling=2.0),
    "gemma2": dict(SHARED, head_dim=8, sliding_window=6, query_pre_attn_scalar=8),
    "olmo2": dict(SHARED),
    "gpt2": dict(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
                 resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "gpt_neox": dict({k: v for k, v in SHARED.items() if k != "num_key_value_heads"}, rotary_pct=0.5),
    "bert": dict({k: v for k, v in SHARED.items() if k != "num_key_value_heads"}, **ENCODER, hidden_dropout_prob=0.0,
                 attention_probs_dropout_prob=0.0),
}
# They read a source and write a target.
T5 = dict(vocab_size=96, d_model=32, d_kv=8, d_ff=48, num_layers=3, num_decoder_layers=2, num_heads=4, pad_token_id=0, eos_token_id=1,
          decoder_start_token_id=0, dropout_rate=0.0)
SEQ2SEQ = {"t5": T5, "t5-gated": dict(T5, d_kv=16, feed_forward_proj="gated-gelu", tie_word_embeddings=False)}
DECODERS = [family for family in CONFIGS if family != "bert"]


def opener_of(family):
    import transformers
    if family in SEQ2SEQ:
        return transformers.AutoModelForSeq2SeqLM
    return transformers.AutoModelForMaskedLM if family == "bert" else transformers.AutoModelForCausalLM


def make(family="llama", seed=0, attention="sdpa", **changes):
    """A model with random weights of a size that makes temperatures matter."""
    from transformers import AutoConfig
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family.partition("-")[0], **{**(CONFIGS | SEQ2SEQ)[family], **changes})
    opener = opener_of(family)
    attention = "eager" if family == "gemma2" and attention == "sdpa" else attention
    model = opener.from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(1 if family in SEQ2SEQ else 6)  # T5's logits are not divided by a root
    return model


def stir(model, seed=1, by=0.3):
    """Moves the numbers of a model's temperature away from their start, and hers alone."""
    import tempera
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for temperature in tempera.temperatures(model):
            for number in temperature.parameters():
                number.add_(by * torch.randn(number.shape, generator=generator))
    return model


def tokens(batch=2, length=12, seed=3):
    return torch.randint(3, 96, (batch, length), generator=torch.Generator().manual_seed(seed))
