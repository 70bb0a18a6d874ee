#include "tempera/nn/stack.h"

#include <algorithm>
#include <optional>
#include <string>

#include "tempera/base/error.h"
#include "tempera/nn/learned_rope.h"
#include "tempera/nn/recompute.h"
#include "tempera/ops/linear.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera::nn {
namespace {

void check_tokens(const torch::Tensor& tokens, const char* what) {
  TEMPERA_CHECK(tokens.defined() && tokens.dim() == 2 && tokens.size(1) > 0, "a batch needs ", what,
                " of the shape (sequences, length), at least one each");
}

}  // namespace

Side target_side(const Batch& batch) {
  check_tokens(batch.tokens, "tokens");
  return {.tokens = batch.tokens,
          .types = batch.types,
          .documents = batch.documents,
          .start = batch.key_start,
          .end = batch.key_end,
          .positions = batch.positions,
          .attention_scale = batch.attention_scale,
          .position_end = batch.position_end,
          .known = batch.known,
          .known_layers = batch.known_layers};
}

Side source_side(const Batch& batch) {
  check_tokens(batch.source, "a source, which an encoder-decoder reads,");
  return {.tokens = batch.source,
          .types = {},
          .documents = batch.source_documents,
          .start = batch.source_start,
          .end = batch.source_end};
}

Stack::Stack(torch::nn::Module& owner, const ModelConfig& config, StackKind kind,
             std::shared_ptr<Embedding> embedding)
    : config_(config),
      kind_(kind),
      embedding_(std::move(embedding)),
      rotary_(config.rope, config.rotary_size(), config.context) {
  const auto norm = [&] {
    return std::make_shared<Norm>(config.norm, config.width, config.norm_eps);
  };
  if (config.position == PositionKind::kLearned)
    positions_ = owner.register_module("positions",
                                       std::make_shared<Embedding>(config.context, config.width));
  if (config.token_types > 0)
    token_types_ = owner.register_module(
        "token_types", std::make_shared<Embedding>(config.token_types, config.width));
  if (config.position == PositionKind::kT5)
    relative_bias_ = owner.register_module(
        "relative_bias", std::make_shared<RelativeBias>(config.heads, /*bidirectional=*/!causal()));
  if (config.token_shift) shift_ = owner.register_parameter("shift", torch::empty({config.width}));
  if (config.position == PositionKind::kRope && config.rope.learned) {
    rope_shift_ = owner.register_parameter(kRopeShift, torch::zeros({config.rotary_size() / 2}));
    rope_start_ = rotary_frequencies(config.rope, config.rotary_size(), 0, 0);
  }
  if (config.embedding_norm) embedding_norm_ = owner.register_module("embedding_norm", norm());
  const auto list = owner.register_module("layers", std::make_shared<torch::nn::Module>("layers"));
  const auto self = causal() ? AttentionKind::kCausal : AttentionKind::kEncoder;
  const auto method = [&](int64_t layer, AttentionKind attention) {
    return make_method(config.method_of_layer(layer, attention),
                       config.layer_shape(layer, attention));
  };
  for (int64_t layer = 0; layer < config.layer_count(self); ++layer) {
    auto cross = kind == StackKind::kTarget ? method(layer, AttentionKind::kCross) : nullptr;
    blocks_.push_back(list->register_module(
        std::to_string(layer),
        std::make_shared<Block>(config, method(layer, self), std::move(cross))));
  }
  if (config.norm_placement != NormPlacement::kPost) norm_ = owner.register_module("norm", norm());
}

void Stack::check_length(int64_t length) const {
  const int64_t most = config_.max_length();
  TEMPERA_CHECK(most == 0 || length <= most, "a sequence of ", length,
                " tokens given: the model has learned positions for ", most);
}

Angles Stack::angles(int64_t first, int64_t rows, int64_t length, const torch::Tensor& positions,
                     const torch::Device& device) {
  const int64_t size = config_.rotary_size();
  if (rope_shift_.defined()) {
    if (rope_start_.device() != device) rope_start_ = rope_start_.to(device);
    if (torch::GradMode::is_enabled() && rope_shift_.requires_grad())
      return learned_angles(shifted_frequencies(rope_start_, rope_shift_),
                            rotary_amplitude(config_.rope), length, positions);
    // A table lasts as long as the numbers are the same; training changes them in place.
    const auto now = rope_shift_.detach().to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true);
    if (!table_shift_.defined() || !torch::equal(now, table_shift_)) {
      rotary_ = RotaryTable(settled_rope(config_.rope, size, now), size, config_.context);
      table_shift_ = now;
    }
  }
  return positions.defined() ? rotary_.at(positions, length)
                             : rotary_.range(first, rows, length, device);
}

// The rows stand where the batch says: keys in between are taken to exist.
void Stack::spread(Pass& pass, const Side& side) const {
  TEMPERA_CHECK(config_.position == PositionKind::kRope && config_.window == 0 && causal(),
                "positions given, and the model is none with rotary positions that sees all keys "
                "before a row");
  TEMPERA_CHECK(side.positions.sizes() == side.tokens.sizes() && side.position_end > 0,
                "positions ", side.positions.sizes(), " below ", side.position_end,
                " given, one for each of ", side.tokens.sizes(), " tokens expected");
  pass.rows.spread = true;
  pass.rows.counts = {.n = side.positions + 1, .position = side.positions};
  if (side.attention_scale.defined()) pass.rows.attention_scale = side.attention_scale.unsqueeze(1);
}

void Stack::cut(Pass& pass, const ContextShare& share, const RowCounts& counts) const {
  SequenceRows& rows = pass.rows;
  const int64_t length = rows.tokens.size(1);
  check_context_ranks(config_, length, share.ranks());
  // A causal row sees the n keys up to itself, or to the last that is no padding.
  auto end = torch::arange(1, length + 1, counts.n.options()).expand(counts.n.sizes());
  if (rows.mask.end.defined()) end = torch::minimum(end, rows.mask.end.to(end).unsqueeze(1));
  // On the CPU: there the layers read them, and would have to wait for a GPU each.
  const auto bound = [&](const torch::Tensor& keys) {
    return share.own(keys).to(torch::kCPU, torch::kInt32);
  };
  pass.shared = {&share, bound(end - counts.n), bound(end),
                 rows.window_n.defined() ? bound(end - rows.window_n) : torch::Tensor()};
  for (auto* tensor : {&rows.tokens, &rows.counts.n, &rows.counts.position, &rows.window_n})
    if (tensor->defined()) *tensor = share.own(*tensor);
  if (rows.attention_scale.defined())
    rows.attention_scale = share.own(rows.attention_scale.squeeze(1)).unsqueeze(1);
}

Pass Stack::make_pass(const Side& side, const PassOptions& options) {
  const int64_t batch = side.tokens.size(0);
  const int64_t length = side.tokens.size(1);
  const auto device = side.tokens.device();
  // Ranks that share sequences have them filled up: padding has no position of its own.
  const bool filled = options.share && side.end.defined() && config_.max_length() > 0;
  check_length(filled ? side.end.max().item<int64_t>() : length);
  Pass pass;
  pass.rows.tokens = side.tokens;
  pass.rows.mask = {
      .documents = side.documents, .start = side.start, .end = side.end, .causal = causal()};
  pass.rows.counts = sequence_rows(pass.rows.mask, batch, length, device);
  if (config_.window > 0) {
    SequenceMask windowed = pass.rows.mask;
    windowed.window = config_.window;
    pass.rows.window_n = sequence_rows(windowed, batch, length, device).n;
  }
  const RowCounts counts = pass.rows.counts;
  if (side.positions.defined()) spread(pass, side);
  if (options.share) cut(pass, *options.share, counts);
  const bool own = pass.rows.spread || pass.shared.share || pass.rows.mask.is_packed_or_padded();
  const int64_t end = std::max(length, pass.rows.spread ? side.position_end : 0);
  if (config_.position == PositionKind::kRope)
    pass.angles = angles(0, end, end, own ? pass.rows.counts.position : torch::Tensor(), device);
  if (relative_bias_) pass.bias = relative_bias_->forward(0, length, length);
  pass.dropout_seed = options.dropout_seed;
  pass.inspection = options.inspection;
  return pass;
}

Pass Stack::make_pass(const torch::Tensor& tokens, const ModelCache& cache) {
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
    pass.angles = angles(first, rows, std::max(first + rows, cache.prompt_rows()),
                         cache.start().defined() ? pass.rows.counts.position : torch::Tensor(),
                         tokens.device());
  if (relative_bias_) pass.bias = relative_bias_->forward(first, rows, cache.capacity());
  return pass;
}

// Of sequences of different lengths, (B, T) new tokens behind them.
Pass Stack::make_pass(const torch::Tensor& tokens, const std::vector<PagedSequence>& sequences) {
  const int64_t rows = tokens.size(1);
  std::vector<int64_t> ends;
  for (const auto& sequence : sequences) ends.push_back(sequence.length + rows);
  const int64_t longest =
      std::max(std::ranges::max(ends),
               std::ranges::max(sequences, {}, &PagedSequence::prompt_rows).prompt_rows);
  check_length(longest);
  Pass pass;
  pass.rows.tokens = tokens;
  pass.rows.mask = {.causal = true};
  const auto lengths = torch::tensor(ends, tokens.options());
  pass.lengths = lengths.to(torch::kInt32);
  pass.rows.counts = decode_rows(lengths, rows, {}, std::nullopt);
  if (config_.window > 0) pass.rows.window_n = decode_rows(lengths, rows, {}, config_.window).n;
  if (config_.position == PositionKind::kRope)
    pass.angles = angles(0, longest, longest, pass.rows.counts.position, tokens.device());
  return pass;
}

// Adds the token before, which the first token of a document has not.
torch::Tensor Stack::shifted(const torch::Tensor& x, const torch::Tensor& before,
                             const Pass& pass) const {
  torch::Tensor previous;
  if (pass.shared.share)
    previous = embedding_->forward(before);
  else if (before.defined())
    previous = torch::cat({embedding_->forward(before), x.narrow(1, 0, x.size(1) - 1)}, 1);
  else
    previous = torch::constant_pad_nd(x.narrow(1, 0, x.size(1) - 1), {0, 0, 1, 0});
  if (pass.shared.share || pass.rows.mask.is_packed_or_padded())
    previous = previous * (pass.rows.counts.position > 0).unsqueeze(-1).to(x.scalar_type());
  return torch::addcmul(x, previous, shift_);
}

torch::Tensor Stack::embed(const Side& side, const torch::Tensor& before, const Pass& pass,
                           torch::ScalarType type) const {
  // Where nothing is added in between, rows come in the type of the blocks.
  const bool direct = !shift_.defined() && !positions_ && !token_types_ &&
                      config_.embedding_scale == 1 && config_.position != PositionKind::kSinusoidal;
  auto x = embedding_->forward(pass.rows.tokens, direct ? type : torch::kFloat32);
  if (shift_.defined()) x = shifted(x, before, pass);
  const auto& position = pass.rows.counts.position;
  if (positions_) x = x + positions_->forward(position.clamp_min(0));
  if (config_.position == PositionKind::kSinusoidal)
    x = x + sinusoidal(position, config_.width).to(x.scalar_type());
  if (token_types_)
    x = x +
        token_types_->forward(side.types.defined() ? side.types : torch::zeros_like(side.tokens));
  if (config_.embedding_scale != 1) x = x * config_.embedding_scale;
  x = x.to(type);
  if (embedding_norm_) x = embedding_norm_->forward(x);
  if (!pass.dropout_seed) return x;
  return seeded_dropout(x, config_.dropout_embedding,
                        dropout_seed(*pass.dropout_seed, 0, DropoutSite::kEmbedding));
}

std::pair<torch::Tensor, size_t> Stack::begin(const Side& side, const Pass& pass,
                                              const PassOptions& options) const {
  if (!side.known.defined()) {
    torch::Tensor before;  // the tokens in front of rows that are not one behind the other
    if (options.share && shift_.defined()) before = options.share->own(side.tokens.roll(1, 1));
    return {embed(side, before, pass, options.type), 0};
  }
  const auto [batch, length] = std::pair(side.tokens.size(0), side.tokens.size(1));
  TEMPERA_CHECK(side.known.sizes() == torch::IntArrayRef({batch, length, config_.width}) &&
                    side.known_layers >= 0 && side.known_layers <= std::ssize(blocks_),
                "rows ", side.known.sizes(), " behind ", side.known_layers, " layers given for ",
                side.tokens.sizes(), " tokens; the model has ", blocks_.size(),
                " layers of the width ", config_.width);
  return {side.known.to(options.type), static_cast<size_t>(side.known_layers)};
}

torch::Tensor Stack::through_blocks(const torch::Tensor& x, const Pass& pass,
                                    const PassOptions& options, size_t first) const {
  const auto& observer = options.observer;
  if (observer) observer(static_cast<int64_t>(first) - 1, x);
  Residual sum{x};
  for (size_t layer = first; layer < blocks_.size(); ++layer) {
    const auto& block = blocks_[layer];
    if (options.blocks) options.blocks->before(*block);
    if (options.recompute) {
      // What gradients flow back to must be an input, not a captured tensor.
      std::vector<torch::Tensor> inputs = {sum.whole()};
      if (pass.bias.defined()) inputs.push_back(pass.bias);
      if (pass.angles.learned()) inputs.insert(inputs.end(), {pass.angles.cos, pass.angles.sin});
      if (pass.source) inputs.push_back(pass.source->x);
      const auto run = [block, pass](const std::vector<torch::Tensor>& given) {
        Pass again = pass;
        size_t next = 1;
        if (pass.bias.defined()) again.bias = given[next++];
        if (pass.angles.learned()) {
          again.angles.cos = given[next];
          again.angles.sin = given[next + 1];
        }
        if (pass.source)
          again.source = std::make_shared<Source>(Source{given.back(), pass.source->rows});
        return block->forward({given[0]}, again).whole();
      };
      sum = {recomputed(run, inputs, block->parameters())};
    } else {
      sum = block->forward(std::move(sum), pass);
    }
    if (options.blocks) options.blocks->after(*block, sum.added.defined() ? sum.added : sum.x);
    if (observer) observer(static_cast<int64_t>(layer), sum.whole());
  }
  return norm_ ? norm_->forward(sum) : sum.whole();
}

Source Stack::forward(const Side& side, const PassOptions& options,
                      const std::shared_ptr<const Source>& source) {
  TEMPERA_CHECK(!side.types.defined() || token_types_,
                "token types given, and the model has no embeddings for them");
  Pass pass = make_pass(side, options);
  pass.source = source;
  const auto [rows, first] = begin(side, pass, options);
  auto x = through_blocks(rows, pass, options, first);
  return {std::move(x), std::move(pass.rows)};
}

ModelCache Stack::make_cache(int64_t batch, int64_t capacity, const torch::Tensor& start,
                             torch::ScalarType type) const {
  TEMPERA_CHECK(batch > 0 && capacity > 0, "a cache for ", batch, " sequences of ", capacity,
                " rows given; both must be above 0");
  check_length(capacity);
  const auto device = embedding_->weight().device();
  std::vector<LayerCache> layers;
  for (const auto& block : blocks_)
    layers.emplace_back(block->attention().method(), batch, capacity,
                        torch::dtype(type).device(device));
  return {std::move(layers),
          torch::zeros({batch, capacity}, torch::dtype(torch::kInt64).device(device)), start};
}

ModelCache Stack::make_cache(const Source& source, int64_t capacity, torch::ScalarType type) const {
  ModelCache cache = make_cache(source.x.size(0), capacity, {}, type);
  std::vector<LayerCache> layers;
  for (const auto& block : blocks_) {
    auto& attention = *block->cross_attention();
    layers.emplace_back(attention.method(), source.x.size(0), source.x.size(1), source.x.options());
    attention.remember(source, layers.back());
  }
  cache.set_source(std::move(layers), source.rows.mask);
  return cache;
}

torch::Tensor Stack::extend(const torch::Tensor& tokens, ModelCache& cache,
                            torch::ScalarType type) {
  TEMPERA_CHECK(tokens.dim() == 2 && tokens.size(0) == cache.batch() && tokens.size(1) > 0,
                "tokens of the shape ", tokens.sizes(), " given, (", cache.batch(),
                ", at least 1) expected, as the cache has");
  TEMPERA_CHECK(cache.length() + tokens.size(1) <= cache.capacity(), "the cache has room for ",
                cache.capacity(), " rows: ", cache.length(), " are there and ", tokens.size(1),
                " more given; make it with a larger capacity");
  const torch::NoGradGuard no_grad;
  const Pass pass = make_pass(tokens, cache);
  torch::Tensor before;
  if (cache.length() > 0) before = cache.tokens().narrow(1, cache.length() - 1, 1);
  Residual sum{embed({tokens, {}, {}, {}, {}}, before, pass, type)};
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    const BlockCache kept{.self = &cache.layer(layer),
                          .cross = cache.has_source() ? &cache.source_layer(layer) : nullptr,
                          .source = cache.source_mask()};
    sum = blocks_[i]->forward(std::move(sum), pass, &kept);
  }
  cache.append_tokens(tokens);
  return norm_ ? norm_->forward(sum) : sum.whole();
}

PagedCache Stack::make_paged_cache(int64_t blocks, int64_t block_size,
                                   torch::ScalarType type) const {
  TEMPERA_CHECK(blocks > 0 && block_size > 0, "a cache of ", blocks, " blocks of ", block_size,
                " rows given; both must be above 0");
  TEMPERA_CHECK(!relative_bias_,
                "T5's positions have a bias for each length: sequences of several lengths have no "
                "pass together");
  const auto device = embedding_->weight().device();
  std::vector<LayerCache> layers;
  for (const auto& block : blocks_)
    layers.push_back(LayerCache::paged(block->attention().method(), blocks, block_size,
                                       torch::dtype(type).device(device)));
  return {std::move(layers), blocks, block_size};
}

torch::Tensor Stack::extend(const PagedRows& rows, PagedCache& cache, torch::ScalarType type) {
  const torch::NoGradGuard no_grad;
  std::optional<ops::RowInvariance> invariance;
  if (rows.tokens.size(1) == 1) invariance.emplace();
  const auto device = embedding_->weight().device();
  cache.place(rows.place(cache, device));
  const auto tokens = rows.tokens.to(device);
  const Pass pass = make_pass(tokens, rows.sequences);
  Residual sum{embed({tokens, {}, {}, {}, {}}, rows.before(device), pass, type)};
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const BlockCache kept{.self = &cache.layer(static_cast<int64_t>(i))};
    sum = blocks_[i]->forward(std::move(sum), pass, &kept);
  }
  return norm_ ? norm_->forward(sum) : sum.whole();
}

void Stack::set_context(const RopeConfig& rope, int64_t context) {
  config_.rope = rope;
  config_.context = context;
  if (rope_shift_.defined()) rope_start_ = rotary_frequencies(rope, config_.rotary_size(), 0, 0);
  rotary_ = RotaryTable(rope, config_.rotary_size(), context);
}

std::vector<Method*> Stack::methods() const {
  std::vector<Method*> found;
  for (const auto& block : blocks_) {
    found.push_back(&block->attention().method());
    if (auto* cross = block->cross_attention()) found.push_back(&cross->method());
  }
  return found;
}

}  // namespace tempera::nn
