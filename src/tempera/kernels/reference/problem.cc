#include "tempera/kernels/reference/problem.h"

#include <cmath>
#include <random>
#include <type_traits>
#include <utility>

#include "tempera/base/error.h"

namespace tempera::kernels {
namespace {

double round_to(Precision precision, double value) {
  switch (precision) {
    case Precision::kDouble:
      return value;
    case Precision::kFloat:
      return to_double(from_double<float>(value));
    case Precision::kBFloat16:
      return to_double(from_double<BFloat16>(value));
  }
  return value;
}

Precision real_precision(Precision precision) {
  return precision == Precision::kDouble ? Precision::kDouble : Precision::kFloat;
}

// FNV-1a: every tensor draws numbers of its own, whatever other features a case has.
uint64_t hash(const std::string& name) {
  uint64_t h = 0xCBF29CE484222325ULL;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return h;
}

// Dimensions that a bias has only once are broadcast.
template <class T>
Rows<T> broadcast(Rows<T> rows, BiasCase bias) {
  if (bias != BiasCase::kFull) rows.batch = 0;
  if (bias == BiasCase::kShared) rows.head = 0;
  return rows;
}

Extent bias_extent(const Case& settings) {
  const Shape& s = settings.shape;
  return {settings.bias == BiasCase::kFull ? s.batch : 1,
          settings.bias == BiasCase::kShared ? 1 : s.q_heads, s.q_rows, s.kv_rows};
}

}  // namespace

std::string Result::place(size_t index) const {
  const auto i = static_cast<int64_t>(index);
  return concat(name, "[", i / extent.size / extent.rows / extent.heads, ", ",
                i / extent.size / extent.rows % extent.heads, ", ", i / extent.size % extent.rows,
                ", ", i % extent.size, "]");
}

template <class T>
Problem<T>::Problem(const Case& settings, Precision precision, uint64_t seed)
    : settings_(settings), precision_(precision), seed_(seed) {
  const Shape& s = settings_.shape;
  params_.shape = s;
  params_.scale = static_cast<Real<T>>(
      round_to(real_precision(precision), 1 / std::sqrt(static_cast<double>(s.qk_size))));
  make_mask();
  Tensor<T>& q = add_tensor("q", query_extent(s, s.qk_size));
  q.fill(random("q", q.extent().count(), 0, settings_.magnitude, /*is_real=*/false));
  params_.q = q.input();
  make_cache();
  make_scale("q_scale", settings_.q_scale, "q", params_.q_scale);
  make_scale("k_scale", settings_.k_scale, "k", params_.k_scale);
  make_scale("v_scale", settings_.v_scale, "v", params_.v_scale);
  make_extras();
  make_outputs();
  if (!settings_.decodes()) make_gradients();
}

template <class T>
void Problem<T>::make_mask() {
  const Shape& s = settings_.shape;
  params_.mask.causal = settings_.causal;
  params_.mask.window = settings_.window;
  params_.mask.query_offset = settings_.query_offset;
  if (settings_.documents.empty() && settings_.content.empty()) return;
  const bool self = settings_.key_documents.empty() && s.q_rows == s.kv_rows;
  RowLayout queries{s.batch, s.q_rows, settings_.documents, {}};
  RowLayout keys{s.batch, s.kv_rows, self ? settings_.documents : settings_.key_documents,
                 settings_.content};
  if (self) queries.content = settings_.content;
  ranges_ = visible_ranges(queries, keys);
  params_.mask.key_begin = ranges_.begin.data();
  params_.mask.key_end = ranges_.end.data();
}

// Keys and values: rows of the call, or a cache whose unused rows stay NaN.
template <class T>
void Problem<T>::make_cache() {
  const Shape& s = settings_.shape;
  const int64_t block_size = settings_.block_size;
  const int64_t blocks = block_size > 0 ? (s.kv_rows + block_size - 1) / block_size : 0;
  if (block_size > 0)  // the blocks of all sequences, interleaved and backwards
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t x = 0; x < blocks; ++x)
        block_table_.push_back(static_cast<int32_t>(s.batch * blocks - 1 - (x * s.batch + b)));

  const auto place = [&](auto& tensor, const std::vector<double>& values, int64_t size) {
    using Element = std::remove_cvref_t<decltype(*tensor.first())>;
    size_t next = 0;
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.kv_heads; ++h)
        for (int64_t j = 0; j < s.kv_rows; ++j, next += static_cast<size_t>(size)) {
          if (settings_.decodes() && j >= settings_.lengths[static_cast<size_t>(b)]) continue;
          const int64_t block =
              block_size > 0 ? block_table_[static_cast<size_t>(b * blocks + j / block_size)] : b;
          Element* row = tensor.rows().at(block, h, block_size > 0 ? j % block_size : j);
          for (size_t c = 0; c < static_cast<size_t>(size); ++c)
            row[c] = from_double<Element>(values[next + c]);
        }
  };
  const auto extent = [&](int64_t size) {
    return block_size > 0 ? Extent{s.batch * blocks, s.kv_heads, block_size, size}
                          : key_extent(s, size);
  };
  for (const auto& [name, size] : {std::pair("k", s.qk_size), std::pair("v", s.v_size)}) {
    Tensor<T>& operand = add_tensor(name, extent(size));
    place(operand, random(name, key_extent(s, size).count(), 0, 1, /*is_real=*/false), size);
    (name[0] == 'k' ? params_.k : params_.v) = operand.input();
    const std::string rows_name = concat(name, "_scale.rows");
    if (!(name[0] == 'k' ? settings_.k_scale : settings_.v_scale).rows) continue;
    Tensor<Real<T>>& rows = add_real(rows_name, extent(1));
    place(rows, random(rows_name, key_extent(s, 1).count(), 1, 0.3, /*is_real=*/true), 1);
  }
}

template <class T>
void Problem<T>::make_scale(const std::string& name, const ScaleCase& parts,
                            const std::string& operand, Scale<T>& scale) {
  const Shape& s = settings_.shape;
  const bool query = operand == "q";
  const int64_t size = operand == "v" ? s.v_size : s.qk_size;
  const Extent extent = query ? query_extent(s, size) : key_extent(s, size);
  if (parts.rows) {
    if (query) {
      Tensor<Real<T>>& rows = add_real(name + ".rows", query_extent(s, 1));
      rows.fill(random(name + ".rows", rows.extent().count(), 1, 0.3, /*is_real=*/true));
    }
    scale.rows = reals_.at(name + ".rows").input();
  }
  Recipe<T>& recipe = scale.recipe;
  const auto fill = [&](const char* part, int64_t columns, double mean, double deviation) {
    const std::string part_name = concat(name, ".", part);
    Real<T>* data = add_numbers(part_name, extent.heads, columns);
    reals_.at(part_name).fill(
        random(part_name, extent.heads * columns, mean, deviation, /*is_real=*/true));
    return data;
  };
  if (parts.w) {
    recipe.size = parts.own_source ? size : size + parts.extra_columns;
    recipe.w = fill("w", recipe.size, 0, 1 / std::sqrt(static_cast<double>(recipe.size)));
    recipe.source = tensors_.at(operand).input();
    if (!parts.own_source) {
      Tensor<T>& source =
          add_tensor(name + ".source", {extent.batch, extent.heads, extent.rows, recipe.size});
      source.fill(random(name + ".source", source.extent().count(), 0, 1, /*is_real=*/false));
      recipe.source = source.input();
    }
  }
  if (parts.c) recipe.c = fill("c", 1, 1, 0.2);
  if (parts.s) recipe.s = fill("s", 1, 1, 0.2);
  if (parts.g) {
    recipe.g = fill("g", 1, 0, 0.3);
    std::vector<double> logs = log_visible_counts<double>(params_.mask, s);
    if (!query && s.q_rows != s.kv_rows) {
      logs.clear();
      for (int64_t j = 0; j < s.batch * s.kv_rows; ++j)
        logs.push_back(std::log(static_cast<double>(j % s.kv_rows + 1)));
    }
    for (double& value : logs) value = round_to(real_precision(precision_), value);
    recipe.log_n = add_numbers(name + ".log_n", s.batch * extent.rows, 1);
    reals_.at(name + ".log_n").fill(logs);
  }
}

template <class T>
void Problem<T>::make_extras() {
  const Shape& s = settings_.shape;
  const Precision precision = real_precision(precision_);
  params_.cap = static_cast<Real<T>>(round_to(precision, settings_.cap));
  params_.dropout = static_cast<Real<T>>(round_to(precision, settings_.dropout));
  params_.seed = 0x5EED0000 + seed_;
  if (settings_.bias != BiasCase::kNone) {
    Tensor<Real<T>>& bias = add_real("bias", bias_extent(settings_));
    bias.fill(random("bias", bias.extent().count(), 0, 1, /*is_real=*/true));
    params_.bias = broadcast(bias.input(), settings_.bias);
  }
  if (settings_.post) {
    Tensor<Real<T>>& post = add_real("post", query_extent(s, 1));
    post.fill(random("post", post.extent().count(), 1, 0.3, /*is_real=*/true));
    params_.post = post.input();
  }
  if (settings_.sinks) {
    params_.sinks = add_numbers("sinks", s.q_heads, 1);
    reals_.at("sinks").fill(random("sinks", s.q_heads, 0.5, 1, /*is_real=*/true));
  }
}

template <class T>
void Problem<T>::make_outputs() {
  const Shape& s = settings_.shape;
  add_tensor("out", query_extent(s, s.v_size));
  add_real("lse", query_extent(s, 1));
  output_names_ = {"out", "lse"};
  if (!settings_.statistics) return;
  add_real("max", query_extent(s, 1));
  add_real("entropy", query_extent(s, 1));
  add_numbers("head_max", s.q_heads, 1);
  output_names_.insert(output_names_.end(), {"max", "entropy", "head_max"});
}

template <class T>
void Problem<T>::make_gradients() {
  const Shape& s = settings_.shape;
  Tensor<T>& d_out = add_tensor("d_out", query_extent(s, s.v_size));
  d_out.fill(random("d_out", d_out.extent().count(), 0, 1, /*is_real=*/false));
  if (settings_.d_lse) {
    Tensor<Real<T>>& d_lse = add_real("d_lse", query_extent(s, 1));
    d_lse.fill(random("d_lse", d_lse.extent().count(), 0, 1, /*is_real=*/true));
  }
  if (settings_.wanted != WantedCase::kScales) {
    add_tensor("d_q", query_extent(s, s.qk_size));
    add_tensor("d_k", key_extent(s, s.qk_size));
    add_tensor("d_v", key_extent(s, s.v_size));
    gradient_names_ = {"d_q", "d_k", "d_v"};
  }
  const bool scales = settings_.wanted != WantedCase::kOperands;
  make_scale_gradient("q_scale", settings_.q_scale, scales);
  make_scale_gradient("k_scale", settings_.k_scale, scales);
  make_scale_gradient("v_scale", settings_.v_scale, scales);
  if (settings_.wanted != WantedCase::kAll) return;
  if (settings_.bias != BiasCase::kNone) {
    add_real("d_bias", bias_extent(settings_));
    gradient_names_.push_back("d_bias");
  }
  if (settings_.post) {
    add_real("d_post", query_extent(s, 1));
    gradient_names_.push_back("d_post");
  }
  if (settings_.sinks) {
    add_numbers("d_sinks", s.q_heads, 1);
    gradient_names_.push_back("d_sinks");
  }
}

template <class T>
void Problem<T>::make_scale_gradient(const std::string& name, const ScaleCase& parts, bool wanted) {
  if (!wanted) return;
  if (parts.rows) {
    add_real("d_" + name + ".rows", reals_.at(name + ".rows").extent());
    gradient_names_.push_back("d_" + name + ".rows");
  }
  if (parts.w && !parts.own_source) {
    add_tensor("d_" + name + ".source", tensors_.at(name + ".source").extent());
    gradient_names_.push_back("d_" + name + ".source");
  }
  for (const char* part : {".w", ".g", ".c", ".s"}) {
    const auto found = reals_.find(name + part);
    if (found == reals_.end()) continue;
    add_numbers("d_" + name + part, found->second.extent().heads, found->second.extent().size);
    gradient_names_.push_back("d_" + name + part);
  }
}

template <class T>
DecodeParams<T> Problem<T>::decode_params() const {
  DecodeParams<T> decode;
  decode.attention = params_;
  decode.lengths = settings_.lengths.data();
  if (settings_.block_size > 0) {
    decode.block_table = block_table_.data();
    decode.block_size = settings_.block_size;
    decode.table_stride = static_cast<int64_t>(block_table_.size()) / settings_.shape.batch;
  }
  return decode;
}

template <class T>
AttentionOutputs<T> Problem<T>::outputs() {
  return {tensor("out"), real("lse"), real("max"), real("entropy"), numbers("head_max")};
}

template <class T>
ScaleGradient<T> Problem<T>::scale_gradient(const std::string& name) {
  return {real(name + ".rows"), tensor(name + ".source"), numbers(name + ".w"),
          numbers(name + ".g"), numbers(name + ".c"),     numbers(name + ".s")};
}

template <class T>
AttentionGradients<T> Problem<T>::gradients() {
  AttentionGradients<T> gradients;
  gradients.out = tensors_.at("out").input();
  gradients.lse = reals_.at("lse").input();
  gradients.d_out = tensors_.at("d_out").input();
  if (settings_.d_lse) gradients.d_lse = reals_.at("d_lse").input();
  gradients.q = tensor("d_q");
  gradients.k = tensor("d_k");
  gradients.v = tensor("d_v");
  gradients.q_scale = scale_gradient("d_q_scale");
  gradients.k_scale = scale_gradient("d_k_scale");
  gradients.v_scale = scale_gradient("d_v_scale");
  gradients.bias = real("d_bias");
  if (gradients.bias) gradients.bias = broadcast(gradients.bias, settings_.bias);
  gradients.post = real("d_post");
  gradients.sinks = numbers("d_sinks");
  return gradients;
}

template <class T>
std::vector<Result> Problem<T>::results(const std::vector<std::string>& names) const {
  std::vector<Result> results;
  for (const std::string& name : names) {
    if (const auto found = tensors_.find(name); found != tensors_.end()) {
      const Tensor<T>& t = found->second;
      results.push_back({name, t.extent(), t.values(), /*real=*/false, t.guards_intact()});
    } else {
      const Tensor<Real<T>>& t = reals_.at(name);
      results.push_back({name, t.extent(), t.values(), /*real=*/true, t.guards_intact()});
    }
  }
  return results;
}

template <class T>
void Problem<T>::poison_results() {
  for (const auto* names : {&output_names_, &gradient_names_})
    for (const std::string& name : *names) {
      if (const auto found = tensors_.find(name); found != tensors_.end()) found->second.poison();
      if (const auto found = reals_.find(name); found != reals_.end()) found->second.poison();
    }
}

template <class T>
Rows<T> Problem<T>::tensor(const std::string& name) {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? Rows<T>{} : found->second.rows();
}

template <class T>
Rows<Real<T>> Problem<T>::real(const std::string& name) {
  const auto found = reals_.find(name);
  return found == reals_.end() ? Rows<Real<T>>{} : found->second.rows();
}

template <class T>
Real<T>* Problem<T>::numbers(const std::string& name) {
  const auto found = reals_.find(name);
  return found == reals_.end() ? nullptr : found->second.first();
}

template <class T>
Tensor<T>& Problem<T>::add_tensor(const std::string& name, const Extent& extent) {
  return tensors_.emplace(name, Tensor<T>(extent, settings_.layout, settings_.offset))
      .first->second;
}

template <class T>
Tensor<Real<T>>& Problem<T>::add_real(const std::string& name, const Extent& extent) {
  return reals_.emplace(name, Tensor<Real<T>>(extent, settings_.layout, settings_.offset))
      .first->second;
}

// Plain arrays have one layout.
template <class T>
Real<T>* Problem<T>::add_numbers(const std::string& name, int64_t heads, int64_t size) {
  Tensor<Real<T>> tensor({1, heads, 1, size}, LayoutCase::kHeadsFirst, settings_.offset);
  return reals_.emplace(name, std::move(tensor)).first->second.first();
}

template <class T>
std::vector<double> Problem<T>::random(const std::string& name, int64_t count, double mean,
                                       double deviation, bool is_real) {
  std::mt19937_64 engine(seed_ ^ hash(name));
  std::normal_distribution<double> normal(mean, deviation);
  const Precision precision = is_real ? real_precision(precision_) : precision_;
  const bool scale_rows = name.ends_with("_scale.rows");
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    double value = normal(engine);
    if (scale_rows && settings_.signs == ScaleSigns::kZeros && i % 3 == 1) value = 0;
    if (scale_rows && settings_.signs == ScaleSigns::kNegative && i % 2 == 1) value = -value;
    values.push_back(round_to(precision, value));
  }
  return values;
}

template class Problem<double>;
template class Problem<float>;
template class Problem<BFloat16>;

}  // namespace tempera::kernels
