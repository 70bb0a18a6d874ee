#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "tempera/base/error.h"
#include "tempera/ops/linear.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"

namespace tempera {
namespace {

// Row r, column c: cos(pi (r + 1/2)(c + 1/2) / columns), scaled so that the rows are orthonormal. A
// first layer needs directions that differ, and a method may draw no random numbers.
torch::Tensor cosine_directions(int64_t rows, int64_t columns) {
  const auto half = [](int64_t size) { return torch::arange(size, torch::kFloat64) + 0.5; };
  const double step = std::numbers::pi / static_cast<double>(columns);
  const auto angles = torch::outer(half(rows), half(columns)) * step;
  return (angles.cos() * std::sqrt(2.0 / static_cast<double>(columns)))
      .to(torch::get_default_dtype_as_scalartype());
}

// a = 1 + tanh(f) + g log n per head, separately for queries, keys and values.
class Ssa final : public Method {
 public:
  Ssa(const LayerShape& shape, const MethodOptions& options)
      : Method(shape),
        form_(text_option(options, "g")),
        token_(text_option(options, "f")),
        tok_(flag_option(options, "tok")),
        pos_(flag_option(options, "pos")) {
    TEMPERA_CHECK(tok_ || pos_, "the method 'ssa' with tok and pos both off is plain attention: ",
                  "turn one of them on, or use 'softmax'");
    if (flag_option(options, "q")) q_ = make_side("q", shape.q_heads, shape.qk_size, options);
    if (flag_option(options, "k")) k_ = make_side("k", shape.kv_heads, shape.qk_size, options);
    if (flag_option(options, "v")) v_ = make_side("v", shape.kv_heads, shape.v_size, options);
    TEMPERA_CHECK(q_ || k_ || v_, "the method 'ssa' with q, k and v all off is plain attention: ",
                  "turn one of them on, or use 'softmax'");
    if (reads_tokens()) {
      TEMPERA_CHECK(shape.vocabulary > 0, "the method 'ssa' with f = feature needs the vocabulary");
      log_frequency_ = register_buffer("log_frequency", torch::zeros({shape.vocabulary}));
    }
  }

  RowScales forward(const LayerInputs& inputs) override {
    if (reads_tokens()) check_frequencies();
    RowScales scales;
    if (q_) scales.q = scale(*q_, inputs.q, inputs.queries);
    if (k_) scales.k = scale(*k_, inputs.k, inputs.keys);
    if (v_) scales.v = scale(*v_, inputs.v, inputs.keys);
    return scales;
  }

  bool reads_tokens() const override { return tok_ && token_ == "feature"; }

  void set_token_counts(const torch::Tensor& counts) override {
    if (!reads_tokens()) return;
    TEMPERA_CHECK(counts.dim() == 1 && counts.size(0) == shape().vocabulary, "there are ",
                  counts.numel(), " token counts for a vocabulary of ", shape().vocabulary);
    const torch::NoGradGuard no_grad;
    // One is added to every count, so that a token that never occurred has a frequency.
    const auto smoothed = counts.to(torch::kFloat64) + 1;
    log_frequency_.copy_((smoothed / smoothed.sum()).log());
  }

 private:
  struct Side {
    torch::Tensor w;      // shared: (heads, size); mlp: (heads, hidden); feature: (heads, 2)
    torch::Tensor first;  // mlp: (hidden, d_model)
    torch::Tensor slope;  // (heads): alpha or beta
  };

  Side make_side(const std::string& name, int64_t heads, int64_t size,
                 const MethodOptions& options) {
    Side side;
    if (tok_) {
      int64_t columns = token_ == "feature" ? 2 : size;
      if (token_ == "mlp") {
        const int64_t hidden = int_option(options, "hidden");
        columns = std::min(hidden > 0 ? hidden : size, shape().d_model);
        side.first = add_parameter(name + "_first", cosine_directions(columns, shape().d_model),
                                   kInADotProduct);
      }
      side.w = add_parameter(name + "_w", torch::zeros({heads, columns}), kInADotProduct);
    }
    if (pos_) {
      const auto* start = form_ == "sigmoid" ? "alpha0" : form_ == "expexp" ? "beta0" : "slope0";
      side.slope = add_parameter(name + "_slope", torch::full({heads}, real_option(options, start)),
                                 kTimesLogN);
    }
    return side;
  }

  torch::Tensor slope(const Side& side, torch::ScalarType type) const {
    const auto raw = side.slope.to(type);
    if (form_ == "sigmoid") return raw.sigmoid();
    if (form_ == "expexp") return (-raw.exp()).exp();
    return raw;
  }

  RowScale scale(const Side& side, const torch::Tensor& projection, const RowInfo& rows) {
    const auto type = scale_type(projection.scalar_type());
    RowScale result;
    if (!tok_ || token_ == "shared") {
      auto& recipe = result.recipe;
      recipe.c = ones(projection.size(1), projection.options().dtype(type));
      if (pos_) {
        recipe.g_is_logit = form_ == "sigmoid";
        recipe.g = recipe.g_is_logit ? side.slope.to(type) : slope(side, type);
      }
      if (tok_) {
        recipe.w = side.w.to(type);
        recipe.source = projection;
      }
      return result;
    }
    result.rows = 1 + token_term(side, rows, type).transpose(1, 2).tanh();
    if (pos_) {
      result.rows =
          result.rows + slope(side, type).view({-1, 1}) * log_count(rows.n, type).unsqueeze(1);
    }
    return result;
  }

  // Made once for a kind of tensor and kept: a step on a GPU has no time for it.
  torch::Tensor ones(int64_t heads, const torch::TensorOptions& options) {
    if (!ones_.defined() || ones_.size(0) < heads || ones_.device() != options.device() ||
        ones_.scalar_type() != options.dtype())
      ones_ = torch::ones({std::max(shape().q_heads, heads)}, options);
    return ones_.narrow(0, 0, heads);
  }

  // f of the forms that do not read the projection, (B, T, heads).
  torch::Tensor token_term(const Side& side, const RowInfo& rows, torch::ScalarType type) const {
    const auto w = side.w.to(type);
    if (token_ == "mlp") {
      const auto hidden = ops::linear(rows.x.to(type), side.first.to(type));
      return ops::linear(
          ops::by_sequence(hidden, [](const auto& part) { return torch::gelu(part); }), w);
    }
    TEMPERA_CHECK(rows.tokens.defined(), "the method 'ssa' with f = feature needs the token ids");
    const auto frequency = log_frequency_.to(type).index({rows.tokens}).unsqueeze(-1);
    return w.select(1, 0) + frequency * w.select(1, 1);
  }

  // Checked once: reading the table waits for the device.
  void check_frequencies() {
    if (has_frequencies_) return;
    has_frequencies_ = log_frequency_.ne(0).any().item<bool>();
    TEMPERA_CHECK(has_frequencies_, "the method 'ssa' with f = feature has no token frequencies: ",
                  "set the counts of the training corpus before the first step");
  }

  std::string form_;
  std::string token_;
  bool tok_;
  bool pos_;
  std::optional<Side> q_, k_, v_;
  torch::Tensor log_frequency_;
  torch::Tensor ones_;
  bool has_frequencies_ = false;
};

std::vector<config::Declaration> ssa_options() {
  const auto start = config::range(-100, 100);
  return {
      {.name = "q", .value = true, .help = "scale the queries"},
      {.name = "k", .value = false, .help = "scale the keys"},
      {.name = "v", .value = true, .help = "scale the values"},
      {.name = "tok", .value = true, .help = "the token term tanh(f)"},
      {.name = "pos", .value = true, .help = "the position term g log n"},
      {.name = "f",
       .value = std::string("shared"),
       .help = "f: w . gelu(projection of the row) (shared), a two-layer network on x (mlp), w_0 + "
               "w_1 log frequency of the token (feature)",
       .domain = config::choices({"shared", "mlp", "feature"})},
      {.name = "hidden",
       .value = int64_t{0},
       .help = "hidden units of f = mlp; 0: the head size",
       .domain = config::range(0, 1e6)},
      {.name = "g",
       .value = std::string("sigmoid"),
       .help =
           "slope g: sigmoid(alpha), exp(-exp(beta)), or a free number (linear; the default for "
           "existing models)",
       .domain = config::choices({"sigmoid", "expexp", "linear"})},
      {.name = "alpha0", .value = -2.0, .help = "start of alpha, g = sigmoid", .domain = start},
      {.name = "beta0", .value = 1.5, .help = "start of beta, g = expexp", .domain = start},
      {.name = "slope0", .value = 0.0, .help = "start of g, g = linear", .domain = start}};
}

}  // namespace

MethodEntry method_ssa() {
  const std::string linear = "linear";
  return {.name = "ssa",
          .formula = "a = 1 + tanh(f) + g log n for q and v, f = w . gelu(q) or w . gelu(v)",
          .help = "Selective Self-Attention: temperatures from the token and its position",
          .options = ssa_options(),
          .loaded = {{"g", linear}},
          .plain = MethodOptions{{"g", linear}},
          .variants = {{},
                       {{"g", linear}, {"k", true}},
                       {{"g", std::string("expexp")}, {"v", false}},
                       {{"q", false}, {"pos", false}},
                       {{"tok", false}},
                       {{"f", std::string("mlp")}},
                       {{"f", std::string("feature")}, {"k", true}}},
          .make = make_as<Ssa>};
}

}  // namespace tempera
