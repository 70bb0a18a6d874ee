#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/nn/attention.h"
#include "tempera/nn/cache.h"
#include "tempera/nn/config.h"
#include "tempera/nn/paged_cache.h"

namespace tempera::nn {

// What is undefined is absent.
struct Batch {
  torch::Tensor tokens;              // (B, T) int64
  torch::Tensor targets;             // (B, T) int64: what row t predicts; -100: nothing. Of a head
                                     // that scores sequences: (B), their classes
  torch::Tensor documents;           // (B, n) lengths that sum to T, 0 where there are fewer
  torch::Tensor key_start, key_end;  // (B): rows outside [start, end) are padding
  torch::Tensor shares;              // (B, T) float32: how much each target counts; undefined: 1
  // (B, T) int64: where a decoder's rotary positions have the rows; undefined: one behind the other
  torch::Tensor positions;
  int64_t position_end = 0;       // they are below it
  torch::Tensor attention_scale;  // (B, T) float32: multiplies the logits of each row; undefined: 1
  uint64_t dropout_seed = 0;      // used in training; give every pass another
  torch::Tensor types;            // (B, T) int64: of an encoder with token types; undefined: 0
  // The sequences that an encoder-decoder reads, as those above; they may have another length.
  torch::Tensor source;  // (B, S) int64
  torch::Tensor source_documents;
  torch::Tensor source_start, source_end;
  // (B, T, width): what the first `known_layers` layers of a decoder or an encoder make of the
  // tokens, as an observer got it. The pass goes on behind them; undefined: it begins at the
  // tokens.
  torch::Tensor known;
  int64_t known_layers = 0;
};

enum class ParameterKind {
  kMatrix,       // of the projections
  kEmbedding,    // token and position tables and the output matrix
  kVector,       // gains, biases, the token shift, the relative bias
  kTemperature,  // of a method
  kFrequency,    // what moves the rotary frequencies
  kAdapter       // low-rank, beside a matrix that stays as it is
};

struct NamedParameter {
  std::string name;
  torch::Tensor tensor;
  ParameterKind kind;
  double rate = 1;  // multiplies the learning rate
};

// Only matrices and tables are decayed.
inline bool is_decayed(ParameterKind kind) {
  return kind == ParameterKind::kMatrix || kind == ParameterKind::kEmbedding;
}

// Whether a parameter or buffer of that name is a method's.
bool is_temperature(const std::string& name);
// Whether it is of a low-rank adapter.
bool is_adapter(const std::string& name);
// Whether it moves the rotary frequencies.
bool is_frequency(const std::string& name);
// Whether it came to the model later: checkpoints of other programs have none of these.
inline bool is_added(const std::string& name) {
  return is_temperature(name) || is_adapter(name) || is_frequency(name);
}

// By name: parameters and buffers. The names are listed in docs/reference/models.md.
using StateMap = std::map<std::string, torch::Tensor>;

// Called with the hidden states before the first layer (layer -1) and after each.
using LayerObserver = std::function<void(int64_t layer, const torch::Tensor& output)>;

// Told of the blocks of a pass in the order in which they run.
class BlockObserver {
 public:
  virtual ~BlockObserver() = default;
  virtual void before(const torch::nn::Module& block) = 0;
  // output: what the backward pass through the block begins with.
  virtual void after(const torch::nn::Module& block, const torch::Tensor& output) = 0;
};

// How a pass is computed.
struct PassOptions {
  torch::ScalarType type = torch::kFloat32;
  bool recompute = false;
  std::optional<uint64_t> dropout_seed = {};
  LayerObserver observer = {};
  std::shared_ptr<Inspection> inspection = {};
  BlockObserver* blocks = nullptr;
  const ContextShare* share = nullptr;  // the rows of the sequences that are computed; null: all
};

// A model of token sequences. Dropout acts in training mode (train()); inference wants eval() and
// no_grad.
class Model : public torch::nn::Module {
 public:
  explicit Model(ModelConfig config) : config_(std::move(config)) {}

  const ModelConfig& config() const { return config_; }

  // (B, T, width) after the last norm.
  virtual torch::Tensor hidden(const Batch& batch, const LayerObserver& observer = {}) = 0;
  // The same of all rows where a context share leaves each rank some of them. No gradients.
  torch::Tensor whole_hidden(const Batch& batch);
  // The rows that have targets: (B, T, width) as hidden() gives them, or one a sequence, (B,
  // width).
  virtual torch::Tensor scored_rows(const Batch& batch) { return hidden(batch); }
  // (outputs, width). Throws where the model has no head.
  virtual const torch::Tensor& output_weight() const = 0;
  // (outputs); undefined: none.
  virtual torch::Tensor output_bias() const { return {}; }
  // What the output matrix is multiplied with, of scored rows (..., width).
  virtual torch::Tensor head_rows(const torch::Tensor& rows) const { return rows; }
  // The scores (..., outputs) of scored rows (..., width), scaled and capped.
  torch::Tensor project(const torch::Tensor& rows) const;
  // (B, T, outputs); (B, outputs) of a head that scores sequences.
  torch::Tensor logits(const Batch& batch) { return project(scored_rows(batch)); }
  // Mean over the targets that are not -100; 0 where there are none.
  torch::Tensor loss(const Batch& batch, double label_smoothing = 0);
  // As the targets, float32: the loss of every row, 0 where it has no target. No gradients. With a
  // context share, of all rows where all have their targets.
  torch::Tensor token_losses(const Batch& batch);
  // The same of scored rows that are there.
  torch::Tensor token_losses(const torch::Tensor& scored, const torch::Tensor& targets) const;

  // For every layer the attention weight of row rows[b][i] on key keys[b][i], and the mean
  // temperatures; rows and keys are (B, pairs). Undefined: no weights, but what all rows do
  // together. An encoder-decoder's encoder comes first, then of every layer of its decoder both
  // attentions.
  virtual std::vector<LayerInspection> inspect(const Batch& batch, const torch::Tensor& rows,
                                               const torch::Tensor& keys) = 0;

  // An empty cache. start: (B) rows of padding in front of each sequence, undefined: none.
  // Encoders have none, and throw.
  virtual ModelCache make_cache(int64_t batch, int64_t capacity, const torch::Tensor& start = {});
  // The cache of an encoder-decoder: Batch::source is read, once, and nothing is written yet.
  virtual ModelCache read_source(const Batch& batch, int64_t capacity);
  // Hidden states (B, rows, width) of tokens (B, rows) that follow those in the cache. No
  // gradients.
  virtual torch::Tensor extend(const torch::Tensor& tokens, ModelCache& cache);

  // The same for many sequences that share a cache; decoders only. A row's bits do not depend on
  // the rows of other sequences in the pass, on the CPU.
  virtual PagedCache make_paged_cache(int64_t blocks, int64_t block_size);
  virtual torch::Tensor extend_paged(const PagedRows& rows, PagedCache& cache);

  // A longer context, with other rotary frequencies; a stage of training. Learned positions are
  // bound to theirs.
  virtual void set_context(int64_t context, const RopeConfig& rope);
  // Its rotary positions as they are now: what was learned of them is in the factors.
  RopeConfig settled_rope() const;
  // The method of every attention, in order.
  virtual std::vector<Method*> methods() = 0;

  // Keep only the blocks' inputs for the backward pass, and compute the rest again there.
  void set_recompute(bool on) { recompute_ = on; }
  // Rows are computed in this type; the parameters keep theirs.
  void set_compute_type(torch::ScalarType type) { compute_type_ = type; }
  torch::ScalarType compute_type() const { return compute_type_; }
  // Caches made from now on keep keys and values in this type: that of the rows, bfloat16 or int8.
  void set_cache_type(torch::ScalarType type) { cache_type_ = type; }
  torch::ScalarType cache_type() const { return cache_type_.value_or(compute_type_); }
  // Told of the blocks of every pass over whole sequences; null: nobody is.
  void set_block_observer(BlockObserver* observer) { block_observer_ = observer; }
  // From now on ranks have the same batches, and passes compute this rank's rows: (B, own rows,
  // width) where (B, T, width) is said, and targets of these alone. Null: all rows. A decoder's.
  void set_context_share(const ContextShare* share) { context_share_ = share; }
  bool shares_context() const { return context_share_ != nullptr; }

  // All parameters in a fixed order.
  std::vector<NamedParameter> parameter_list() const;
  int64_t parameter_count() const;
  int64_t temperature_parameter_count() const;

  // Matrices that have no gradients become copies of this type, in which the model computes from
  // now on. state() gives them as they were: all their digits stay, on the CPU.
  void round_frozen(torch::ScalarType type);

  // The tensors themselves, not copies.
  StateMap state() const;
  // Copies the values in. Throws, naming the tensors, if names or shapes differ.
  void load_state(const StateMap& state);

 protected:
  PassOptions pass_options(const Batch& batch, const LayerObserver& observer) const;
  // Of a pass that notes the weights of these pairs, or what all rows do, without dropout.
  PassOptions inspecting(const torch::Tensor& rows, const torch::Tensor& keys) const;
  // Throws in training mode: a cache is for inference.
  void check_inference() const;

  ModelConfig config_;

 private:
  bool recompute_ = false;
  torch::ScalarType compute_type_ = torch::kFloat32;
  std::optional<torch::ScalarType> cache_type_;  // none: as the rows
  BlockObserver* block_observer_ = nullptr;
  const ContextShare* context_share_ = nullptr;
  StateMap originals_;  // of the matrices that round_frozen() rounded
};

// Throws unless the model is a decoder; `job` is what needs one.
void require_decoder(const Model& model, std::string_view job);

// A model with weights drawn from the seed. A parameter's start depends on the seed, its name and
// its shape alone, and a method's parameters draw nothing, so all methods start from the same
// weights.
std::shared_ptr<Model> make_model(const ModelConfig& config, uint64_t seed);

// The phases of make_model. Without initialisation the weights have no values: for loading.
std::shared_ptr<Model> make_empty_model(const ModelConfig& config);
void initialize(Model& model, uint64_t seed);
// Low-rank adapters alone, for a model whose other weights were loaded.
void initialize_adapters(Model& model, uint64_t seed);

}  // namespace tempera::nn
