#include "tempera/nn/decoder.h"

#include <string>

#include "tempera/base/error.h"
#include "tempera/nn/recompute.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera::nn {
namespace {

bool is_packed_or_padded(const SequenceMask& mask) {
  return mask.documents.defined() || mask.start.defined() || mask.end.defined();
}

}  // namespace

Decoder::Decoder(const ModelConfig& config)
    : Model(config), rotary_(config.rope, config.rotary_size(), config.context) {
  embedding_ =
      register_module("embedding", std::make_shared<Embedding>(config.vocabulary, config.width));
  if (config.position == PositionKind::kLearned)
    positions_ =
        register_module("positions", std::make_shared<Embedding>(config.context, config.width));
  if (config.position == PositionKind::kT5)
    relative_bias_ = register_module(
        "relative_bias", std::make_shared<RelativeBias>(config.heads, /*bidirectional=*/false));
  if (config.token_shift) shift_ = register_parameter("shift", torch::empty({config.width}));
  const auto list = register_module("layers", std::make_shared<torch::nn::Module>("layers"));
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    auto method = make_method(config.method_of_layer(layer), config.layer_shape(layer));
    blocks_.push_back(list->register_module(std::to_string(layer),
                                            std::make_shared<Block>(config, std::move(method))));
  }
  if (config.norm_placement != NormPlacement::kPost)
    norm_ =
        register_module("norm", std::make_shared<Norm>(config.norm, config.width, config.norm_eps));
  if (!config.tied_embeddings)
    head_ = register_module(
        "head", std::make_shared<Linear>(config.width, config.output_count(), /*bias=*/false));
}

const torch::Tensor& Decoder::output_weight() const {
  return head_ ? head_->weight() : embedding_->weight();
}

void Decoder::check_length(int64_t length) const {
  const int64_t most = config_.max_length();
  TEMPERA_CHECK(most == 0 || length <= most, "a sequence of ", length,
                " tokens given: the model has learned positions for ", most);
}

Pass Decoder::make_pass(const Batch& batch) {
  TEMPERA_CHECK(batch.tokens.defined() && batch.tokens.dim() == 2 && batch.tokens.size(1) > 0,
                "a batch needs tokens of the shape (sequences, length), at least one each");
  const int64_t length = batch.tokens.size(1);
  const auto device = batch.tokens.device();
  check_length(length);
  Pass pass;
  pass.rows.tokens = batch.tokens;
  pass.rows.mask = {
      .documents = batch.documents, .start = batch.key_start, .end = batch.key_end, .causal = true};
  pass.rows.counts = sequence_rows(pass.rows.mask, batch.tokens.size(0), length, device);
  if (config_.window > 0) {
    SequenceMask windowed = pass.rows.mask;
    windowed.window = config_.window;
    pass.rows.window_n = sequence_rows(windowed, batch.tokens.size(0), length, device).n;
  }
  if (config_.position == PositionKind::kRope)
    pass.angles = is_packed_or_padded(pass.rows.mask)
                      ? rotary_.at(pass.rows.counts.position, length)
                      : rotary_.range(0, length, device);
  if (relative_bias_) pass.bias = relative_bias_->forward(0, length, length);
  if (is_training()) pass.dropout_seed = batch.dropout_seed;
  return pass;
}

Pass Decoder::make_pass(const torch::Tensor& tokens, const ModelCache& cache) {
  const int64_t rows = tokens.size(1);
  const int64_t first = cache.length();
  check_length(first + rows);
  Pass pass;
  pass.rows.tokens = tokens;
  pass.rows.mask = {.documents = {}, .start = cache.start(), .end = {}, .causal = true};
  const auto lengths = torch::full({tokens.size(0)}, first + rows, tokens.options());
  pass.lengths = lengths.to(torch::kInt32);
  pass.rows.counts = decode_rows(lengths, rows, cache.start(), std::nullopt);
  if (config_.window > 0)
    pass.rows.window_n = decode_rows(lengths, rows, cache.start(), config_.window).n;
  if (config_.position == PositionKind::kRope)
    pass.angles = cache.start().defined() ? rotary_.at(pass.rows.counts.position, first + rows)
                                          : rotary_.range(first, rows, tokens.device());
  if (relative_bias_) pass.bias = relative_bias_->forward(first, rows, cache.capacity());
  return pass;
}

// Adds the token before, which the first token of a document has not.
torch::Tensor Decoder::shifted(const torch::Tensor& x, const torch::Tensor& before,
                               const Pass& pass) {
  auto previous = torch::constant_pad_nd(x.narrow(1, 0, x.size(1) - 1), {0, 0, 1, 0});
  if (before.defined())
    previous = torch::cat({embedding_->forward(before), x.narrow(1, 0, x.size(1) - 1)}, 1);
  if (is_packed_or_padded(pass.rows.mask))
    previous = previous * (pass.rows.counts.position > 0).unsqueeze(-1).to(x.scalar_type());
  return torch::addcmul(x, previous, shift_);
}

torch::Tensor Decoder::embed(const torch::Tensor& tokens, const torch::Tensor& before,
                             const Pass& pass) {
  auto x = embedding_->forward(tokens);
  if (shift_.defined()) x = shifted(x, before, pass);
  const auto& position = pass.rows.counts.position;
  if (positions_) x = x + positions_->forward(position.clamp_min(0));
  if (config_.position == PositionKind::kSinusoidal)
    x = x + sinusoidal(position, config_.width).to(x.scalar_type());
  if (config_.embedding_scale != 1) x = x * config_.embedding_scale;
  x = x.to(compute_type());
  if (!pass.dropout_seed) return x;
  return seeded_dropout(x, config_.dropout_embedding,
                        dropout_seed(*pass.dropout_seed, 0, DropoutSite::kEmbedding));
}

torch::Tensor Decoder::through_blocks(torch::Tensor x, const Pass& pass,
                                      const LayerObserver& observer) {
  if (observer) observer(-1, x);
  for (size_t layer = 0; layer < blocks_.size(); ++layer) {
    const auto& block = blocks_[layer];
    if (recompute()) {
      const auto run = [block, pass](const std::vector<torch::Tensor>& inputs) {
        Pass again = pass;
        if (inputs.size() > 1) again.bias = inputs[1];
        return block->forward(inputs[0], again);
      };
      std::vector<torch::Tensor> inputs = {x};
      if (pass.bias.defined()) inputs.push_back(pass.bias);
      x = recomputed(run, inputs, block->parameters());
    } else {
      x = block->forward(x, pass);
    }
    if (observer) observer(static_cast<int64_t>(layer), x);
  }
  return norm_ ? norm_->forward(x) : x;
}

torch::Tensor Decoder::hidden(const Batch& batch, const LayerObserver& observer) {
  const Pass pass = make_pass(batch);
  return through_blocks(embed(batch.tokens, {}, pass), pass, observer);
}

std::vector<LayerInspection> Decoder::inspect(const Batch& batch, const torch::Tensor& rows,
                                              const torch::Tensor& keys) {
  TEMPERA_CHECK(rows.dim() == 2 && rows.sizes() == keys.sizes(),
                "rows and keys to inspect must both have the shape (sequences, pairs)");
  const torch::NoGradGuard no_grad;
  Pass pass = make_pass(batch);
  pass.dropout_seed.reset();
  pass.inspection = std::make_shared<Inspection>(Inspection{rows, keys, {}});
  through_blocks(embed(batch.tokens, {}, pass), pass, {});
  return pass.inspection->layers;
}

ModelCache Decoder::make_cache(int64_t batch, int64_t capacity, const torch::Tensor& start) {
  TEMPERA_CHECK(batch > 0 && capacity > 0, "a cache for ", batch, " sequences of ", capacity,
                " rows given; both must be above 0");
  check_length(capacity);
  const auto device = embedding_->weight().device();
  std::vector<LayerCache> layers;
  for (const auto& block : blocks_)
    layers.emplace_back(block->attention().method(), batch, capacity,
                        torch::dtype(compute_type()).device(device));
  return {std::move(layers),
          torch::zeros({batch, capacity}, torch::dtype(torch::kInt64).device(device)), start};
}

torch::Tensor Decoder::extend(const torch::Tensor& tokens, ModelCache& cache) {
  TEMPERA_CHECK(tokens.dim() == 2 && tokens.size(0) == cache.batch() && tokens.size(1) > 0,
                "tokens of the shape ", tokens.sizes(), " given, (", cache.batch(),
                ", at least 1) expected, as the cache has");
  TEMPERA_CHECK(!is_training(), "a cache is for inference: call eval() on the model first");
  TEMPERA_CHECK(cache.length() + tokens.size(1) <= cache.capacity(), "the cache has room for ",
                cache.capacity(), " rows: ", cache.length(), " are there and ", tokens.size(1),
                " more given; make it with a larger capacity");
  const torch::NoGradGuard no_grad;
  const Pass pass = make_pass(tokens, cache);
  torch::Tensor before;
  if (cache.length() > 0) before = cache.tokens().narrow(1, cache.length() - 1, 1);
  auto x = embed(tokens, before, pass);
  for (size_t layer = 0; layer < blocks_.size(); ++layer)
    x = blocks_[layer]->forward(x, pass, &cache.layer(static_cast<int64_t>(layer)));
  cache.append_tokens(tokens);
  return norm_ ? norm_->forward(x) : x;
}

void Decoder::set_context(int64_t context, double rope_base) {
  Model::set_context(context, rope_base);
  rotary_ = RotaryTable(config_.rope, config_.rotary_size(), context);
}

std::vector<Method*> Decoder::methods() {
  std::vector<Method*> found;
  for (const auto& block : blocks_) found.push_back(&block->attention().method());
  return found;
}

}  // namespace tempera::nn
