#include "tempera/models/weights.h"

#include <algorithm>
#include <map>
#include <set>

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/families/gguf.h"
#include "tempera/nn/layers.h"
#include "tempera/ops/blocks.h"
#include "tempera/ops/torch.h"

namespace tempera::models {
namespace {

using families::Layout;
using families::Part;
using families::Rule;

// What stands beside the weights: buffers that older programs wrote, and GGUF's factors of rotary
// frequencies, which are read with the configuration.
constexpr std::string_view kBuffers[] = {".attn.bias",           ".attn.masked_bias",
                                         ".attention.bias",      ".attention.masked_bias",
                                         ".rotary_emb.inv_freq", families::kRopeFactors};

// "layers.3.mlp.in.weight" -> ("layers.{}.mlp.in.weight", 3); "encoder.layers.3..." likewise.
std::pair<std::string, int64_t> pattern_of(const std::string& name) {
  constexpr std::string_view kLayers = "layers.";
  const size_t found = name.find(kLayers);
  if (found == std::string::npos) return {name, 0};
  const size_t begin = found + kLayers.size();
  const size_t end = name.find('.', begin);
  return {name.substr(0, begin) + "{}" + name.substr(end),
          std::stoll(name.substr(begin, end - begin))};
}

// The rows of our tensor that each part of a rule gives.
std::vector<int64_t> part_rows(const nn::ModelConfig& config, const Rule& rule, int64_t rows) {
  const auto count = rule.parts.size();
  if (count == 1) return {rows};
  if (count == 2) return {rows / 2, rows / 2};
  const int64_t size = config.size_of_head();
  return {config.heads * size, config.kv_head_count() * size, config.kv_head_count() * size};
}

// (a, b, rest) -> (b, a, rest) over the first dimension of a * b * rest rows.
torch::Tensor swapped(const torch::Tensor& x, int64_t a, int64_t b) {
  return x.unflatten(0, {a, b, -1}).transpose(0, 1).flatten(0, 2);
}

// Columns that rotate together, side by side or half a head apart; head by head.
torch::Tensor paired(const torch::Tensor& x, int64_t head_size, int64_t first, int64_t second) {
  return x.unflatten(0, {x.size(0) / head_size, first, second}).transpose(1, 2).flatten(0, 2);
}

torch::Tensor ours_of(const torch::Tensor& theirs, Layout layout, const nn::ModelConfig& config) {
  const int64_t half = config.size_of_head() / 2;
  switch (layout) {
    case Layout::kSame:
      return theirs;
    case Layout::kTransposed:
      return theirs.t();
    case Layout::kByHead:
      return swapped(theirs, config.heads, 3);
    case Layout::kMinusOne:
      return theirs.to(torch::kFloat32) + 1;
    case Layout::kRotaryPairs:
      return paired(theirs, 2 * half, half, 2);
  }
  TORCH_INTERNAL_ASSERT(false, "a layout without a case");
}

// Where each of the file's rows of rotary pairs goes.
std::vector<int64_t> places(int64_t rows, const nn::ModelConfig& config) {
  const auto from = ours_of(torch::arange(rows), Layout::kRotaryPairs, config).contiguous();
  std::vector<int64_t> place(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row)
    place[static_cast<size_t>(from.const_data_ptr<int64_t>()[row])] = row;
  return place;
}

torch::Tensor theirs_of(const torch::Tensor& ours, Layout layout, const nn::ModelConfig& config) {
  const int64_t half = config.size_of_head() / 2;
  switch (layout) {
    case Layout::kSame:
      return ours;
    case Layout::kTransposed:
      return ours.t();
    case Layout::kByHead:
      return swapped(ours, 3, config.heads);
    case Layout::kMinusOne:
      return ours.to(torch::kFloat32) - 1;
    case Layout::kRotaryPairs:
      return paired(ours, 2 * half, 2, half);
  }
  TORCH_INTERNAL_ASSERT(false, "a layout without a case");
}

std::vector<int64_t> theirs_shape(const torch::Tensor& ours, int64_t rows, Layout layout) {
  std::vector<int64_t> shape = ours.sizes().vec();
  shape[0] = rows;
  if (layout == Layout::kTransposed) std::ranges::reverse(shape);
  return shape;
}

const Rule& rule_for(const std::vector<Rule>& rules, const std::string& name) {
  const std::string pattern = pattern_of(name).first;
  for (const Rule& rule : rules)
    if (rule.ours == pattern) return rule;
  throw Error(concat("the family has no place for the tensor ", name));
}

// The name under which a file has a tensor; empty: it has not.
std::string find_name(const TensorSource& source, const std::string& name,
                      std::string_view prefix) {
  std::vector<std::string> spellings = {name};
  if (!prefix.empty() && name.starts_with(prefix)) spellings.push_back(name.substr(prefix.size()));
  // What the norms of the oldest files are called.
  for (const auto& [now, once] : {std::pair("LayerNorm.weight", "LayerNorm.gamma"),
                                  std::pair("LayerNorm.bias", "LayerNorm.beta")})
    if (name.ends_with(now))
      for (const std::string& spelling : std::vector<std::string>(spellings))
        spellings.push_back(spelling.substr(0, spelling.size() - std::string_view(now).size()) +
                            once);
  for (const std::string& spelling : spellings)
    if (source.has(spelling)) return spelling;
  return "";
}

class Loader {
 public:
  Loader(nn::Model& model, const std::vector<Rule>& rules, const TensorSource& source,
         const NameOptions& options)
      : model_(model), rules_(rules), source_(source), options_(options) {
    for (const std::string& name : source.names()) left_.insert(name);
  }

  void run() {
    for (const auto& [name, tensor] : model_.state())
      if (!nn::is_added(name)) load(name, tensor);
    TEMPERA_CHECK(missing_.empty(), "the weights lack ", listed(missing_));
    // A tied model's file may hold the output matrix too.
    if (model_.config().tied_embeddings) take(rule_for(rules_, "head.weight").parts[0].name);
    std::vector<std::string> extra;
    for (const std::string& name : left_) {
      const auto ends = [&](std::string_view end) { return name.ends_with(end); };
      if (std::ranges::none_of(kBuffers, ends) && std::ranges::none_of(options_.unused, ends))
        extra.push_back(name);
    }
    TEMPERA_CHECK(extra.empty(), "the weights have ", listed(extra),
                  ", which the model that the configuration describes has not");
  }

 private:
  std::string take(const std::string& name) {
    std::string found = find_name(source_, name, options_.prefix);
    left_.erase(found);
    return found;
  }

  // The names of the file's tensors that ours is made of; their shapes fit. Empty: some are
  // missing.
  std::vector<std::string> found_parts(const std::string& name, const torch::Tensor& tensor,
                                       const Rule& rule, const std::vector<int64_t>& rows) {
    std::vector<std::string> all;
    for (size_t i = 0; i < rule.parts.size(); ++i) {
      const std::string wanted = families::at_layer(rule.parts[i].name, pattern_of(name).second);
      const std::string found = take(wanted);
      if (found.empty()) {
        missing_.push_back(wanted);
        continue;
      }
      const auto shape = theirs_shape(tensor, rows[i], rule.parts[i].layout);
      TEMPERA_CHECK(source_.shape(found) == shape, found, ": shape ",
                    io::shape_text(source_.shape(found)), " given, ", io::shape_text(shape),
                    " expected");
      all.push_back(found);
    }
    if (all.size() < rule.parts.size()) all.clear();
    return all;
  }

  void load(const std::string& name, const torch::Tensor& tensor) {
    const Rule& rule = rule_for(rules_, name);
    const auto rows = part_rows(model_.config(), rule, tensor.size(0));
    const auto found = found_parts(name, tensor, rule, rows);
    if (found.empty() || keep_blocks(name, tensor, rule, found)) return;
    int64_t first = 0;
    for (size_t i = 0; i < rule.parts.size(); ++i) {
      const Layout layout = rule.parts[i].layout;
      // Arithmetic on the numbers wants all their digits.
      const auto type = layout == Layout::kMinusOne ? torch::kFloat32 : tensor.scalar_type();
      tensor.narrow(0, first, rows[i])
          .copy_(ours_of(source_.read(found[i], type), layout, model_.config()));
      source_.release(found[i]);
      first += rows[i];
    }
  }

  // Where all parts can stay in the file's blocks, which may lie in another order there, and the
  // tensor is the weight of a module that takes them.
  bool keep_blocks(const std::string& name, const torch::Tensor& tensor, const Rule& rule,
                   const std::vector<std::string>& found) {
    std::vector<ops::WeightBlocks> parts;
    for (size_t i = 0; i < found.size(); ++i) {
      auto part = source_.blocks(found[i]);
      const Layout layout = rule.parts[i].layout;
      if (!part || (layout != Layout::kSame && layout != Layout::kRotaryPairs)) return false;
      if (layout == Layout::kRotaryPairs) part->place = places(part->rows, model_.config());
      parts.push_back(std::move(*part));
    }
    if (tensor.dim() != 2) return false;
    return set_weight(modules_, name,
                      ops::block_tensor(std::move(parts), tensor.size(1), source_.owner()));
  }

  nn::Model& model_;
  const std::vector<Rule>& rules_;
  const TensorSource& source_;
  const NameOptions& options_;
  const Modules modules_ = model_.named_modules();
  std::set<std::string> left_;
  std::vector<std::string> missing_;
};

// Of the matrices of a model; doubles, as files may give any sizes.
double matrix_numbers(const nn::ModelConfig& c) {
  const auto real = [](int64_t size) { return static_cast<double>(size); };
  const double width = real(c.width), heads = real(c.heads * c.size_of_head());
  const double kv_heads = real(c.kv_head_count() * c.size_of_head()), mlp = real(c.size_of_mlp());
  const auto matrix = [&](double inputs, double outputs) {
    return inputs * outputs + real(c.lora.rank) * (inputs + outputs);
  };
  const double attention = matrix(width, heads + 2 * kv_heads) + matrix(heads, width);
  const double mlps =
      matrix(width, nn::is_gated(c.activation) ? 2 * mlp : mlp) + matrix(mlp, width);
  const int64_t blocks =
      c.layer_count(AttentionKind::kEncoder) + c.layer_count(AttentionKind::kCausal);
  const int64_t attentions = blocks + c.layer_count(AttentionKind::kCross);
  const bool own_head = c.head == nn::HeadKind::kTokens && !c.tied_embeddings;
  const int64_t rows =
      c.vocabulary + c.token_types + c.max_length() + (own_head ? c.output_count() : 0);
  return real(attentions) * attention + real(blocks) * mlps + real(rows) * width;
}

}  // namespace

void check_numbers(const nn::ModelConfig& config, const TensorSource& source,
                   const std::string& where) {
  double numbers = 0, tensors = 0;
  for (const std::string& name : source.names()) {
    double count = 1;
    for (const int64_t size : source.shape(name)) count *= static_cast<double>(size);
    numbers += count;
    ++tensors;
  }
  const auto layers = static_cast<double>(std::max(config.layers, config.decoder_layers));
  TEMPERA_CHECK(layers <= tensors, where, ": a model of ", layers,
                " layers given; the weights have ", tensors, " tensors");
  config.validate();
  constexpr double kSlack = 1 << 20;
  const double wanted = matrix_numbers(config);
  TEMPERA_CHECK(wanted <= 2 * numbers + kSlack, where, ": a model of ", config.layers,
                " layers, width ", config.width, ", ", config.heads, " heads of ",
                config.size_of_head(), ", MLP size ", config.size_of_mlp(), ", vocabulary ",
                config.vocabulary, " and context ", config.context, " given, of ", wanted,
                " numbers; the weights have ", numbers);
}

void load_weights(nn::Model& model, const std::vector<Rule>& rules, const TensorSource& source,
                  const NameOptions& options) {
  const torch::NoGradGuard no_grad;
  Loader(model, rules, source, options).run();
}

bool set_weight(const Modules& modules, const std::string& name, const torch::Tensor& weight) {
  constexpr std::string_view kEnd = ".weight";
  if (!name.ends_with(kEnd)) return false;
  const auto* const module = modules.find(name.substr(0, name.size() - kEnd.size()));
  if (!module) return false;
  const auto set = [&]<class Module>(Module* owner) {
    if (owner) owner->set_weight(weight);
    return owner != nullptr;
  };
  return set(dynamic_cast<nn::Linear*>(module->get())) ||
         set(dynamic_cast<nn::Embedding*>(module->get()));
}

void settle(nn::ModelConfig& config, const std::vector<Rule>& rules, const TensorSource& source,
            const NameOptions& options) {
  const auto name_of = [&](const std::string& ours) {
    return find_name(source, rule_for(rules, ours).parts[0].name, options.prefix);
  };
  if (config.tied_embeddings && config.head == nn::HeadKind::kTokens) {
    const auto table = name_of("embedding.weight"), head = name_of("head.weight");
    if (!table.empty() && !head.empty() && source.shape(table) == source.shape(head)) {
      const auto rows = source.read(table, torch::kFloat32);
      config.tied_embeddings =
          torch::equal(rows, source.read(head, torch::kFloat32).to(rows.scalar_type()));
    }
  }
  if (config.kind == nn::ModelKind::kEncoder && config.head == nn::HeadKind::kNone)
    config.pooler = !name_of("pooler.weight").empty();
}

std::optional<std::string> family_name(const std::vector<Rule>& rules, const std::string& ours) {
  const auto [pattern, layer] = pattern_of(ours);
  for (const Rule& rule : rules)
    if (rule.ours == pattern) return families::at_layer(rule.parts[0].name, layer);
  return std::nullopt;
}

nn::StateMap file_tensors(const nn::ModelConfig& config, const nn::StateMap& state,
                          const std::vector<Rule>& rules) {
  const torch::NoGradGuard no_grad;
  nn::StateMap tensors;
  for (const auto& [name, tensor] : state) {
    if (nn::is_added(name)) continue;
    const Rule& rule = rule_for(rules, name);
    const auto rows = part_rows(config, rule, tensor.size(0));
    int64_t first = 0;
    for (size_t i = 0; i < rule.parts.size(); ++i) {
      const Part& part = rule.parts[i];
      tensors[families::at_layer(part.name, pattern_of(name).second)] =
          theirs_of(tensor.narrow(0, first, rows[i]), part.layout, config)
              .to(tensor.scalar_type())
              .contiguous();
      first += rows[i];
    }
  }
  return tensors;
}

}  // namespace tempera::models
