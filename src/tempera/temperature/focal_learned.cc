#include <cmath>

#include "tempera/base/error.h"
#include "tempera/ops/linear.h"
#include "tempera/ops/torch.h"
#include "tempera/temperature/registry.h"
#include "tempera/temperature/scan.h"

namespace tempera {
namespace {

// clamp() whose gradient also passes outside the range when following it leads back: a plain clamp
// would hold a temperature that left the range there for ever.
struct ReturningClip : torch::autograd::Function<ReturningClip> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& value, double low, double high) {
    context->save_for_backward({value});
    context->saved_data["low"] = low;
    context->saved_data["high"] = high;
    return value.clamp(low, high);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto value = context->get_saved_variables().front();
    const auto& gradient = gradients.front();
    // Descent moves against the gradient.
    const auto below = value < context->saved_data["low"].toDouble();
    const auto above = value > context->saved_data["high"].toDouble();
    const auto stopped = (below & (gradient > 0)) | (above & (gradient < 0));
    return {gradient.masked_fill(stopped, 0), {}, {}};
  }
};

enum class Axis { kPrefix, kToken, kSequence };

Axis parse_axis(const std::string& text, AttentionKind kind) {
  if (text == "prefix") return Axis::kPrefix;
  if (text == "token") return Axis::kToken;
  if (text == "sequence") return Axis::kSequence;
  // A mean over the whole sequence shows a causal row its future, so it must be asked for by name.
  return kind == AttentionKind::kEncoder ? Axis::kSequence : Axis::kPrefix;
}

// Logits are <q, k> / tau with tau = clip(b + mean(x . w)), so that a_q = sqrt(d) / tau.
class FocalLearned final : public Method {
 public:
  FocalLearned(const LayerShape& shape, const MethodOptions& options)
      : Method(shape),
        axis_(parse_axis(text_option(options, "axis"), shape.kind)),
        unit_(std::sqrt(static_cast<double>(shape.qk_size))),
        low_(real_option(options, "min") * unit_),
        high_(real_option(options, "max") * unit_) {
    const double start = real_option(options, "t0") * unit_;
    TEMPERA_CHECK(low_ <= start && start <= high_,
                  "the options of 'focal-learned' must satisfy min <= t0 <= max, but they are ",
                  real_option(options, "min"), ", ", real_option(options, "t0"), ", ",
                  real_option(options, "max"));
    weight_ = add_parameter("weight", torch::zeros({shape.d_model}), kInADotProduct);
    bias_ = add_parameter("bias", torch::full({1}, start), kActsOnAHead);
  }

  RowScales forward(const LayerInputs& inputs) override {
    const auto type = scale_type(inputs.q.scalar_type());
    const RowInfo& rows = inputs.queries;
    const auto projected = ops::linear(rows.x.to(type), weight_.to(type).unsqueeze(0)).squeeze(-1);
    RowScales scales;
    const auto mean = axis_ == Axis::kToken ? projected : document_mean(projected, inputs, scales);
    const auto tau = ReturningClip::apply(bias_.to(type) + mean.to(type), low_, high_);
    // Rounded as the bias is, so that t0 = 1 divides to exactly 1 in every type.
    const auto unit = torch::full({1}, unit_, bias_.options().requires_grad(false)).to(type);
    scales.q.rows = (unit / tau).unsqueeze(1);
    return scales;
  }

  int64_t state_width() const override { return axis_ == Axis::kPrefix ? 1 : 0; }
  bool cacheable() const override {
    return axis_ != Axis::kSequence || shape().kind == AttentionKind::kEncoder;
  }

 private:
  // Sums are float64: they run over whole documents, and one number a row costs nothing.
  torch::Tensor document_mean(const torch::Tensor& projected, const LayerInputs& inputs,
                              RowScales& scales) const {
    if (!inputs.share) return mean_of_all(projected, inputs, scales);
    LayerInputs all = inputs;
    all.queries.position = inputs.share->whole(inputs.queries.position);
    const auto mean = mean_of_all(inputs.share->whole(projected), all, scales);
    if (scales.state.defined()) scales.state = inputs.share->own(scales.state);
    return inputs.share->own(mean);
  }

  torch::Tensor mean_of_all(const torch::Tensor& projected, const LayerInputs& inputs,
                            RowScales& scales) const {
    const auto& position = inputs.queries.position;
    const auto past = inputs.past.defined() ? inputs.past.squeeze(1) : torch::Tensor();
    const auto sums = document_prefix_sums(projected.to(torch::kFloat64), position, past);
    if (axis_ == Axis::kPrefix) {
      scales.state = sums.detach().unsqueeze(2);
      return sums / (position + 1).clamp_min(1);
    }
    const auto last = document_last_rows(position);
    const auto mean = sums.gather(1, last) / (position.gather(1, last) + 1).clamp_min(1);
    return torch::where(position >= 0, mean, torch::zeros({}, mean.options()));
  }

  Axis axis_;
  double unit_;  // sqrt(d): tau in units of the usual scale
  double low_;
  double high_;
  torch::Tensor weight_;
  torch::Tensor bias_;
};

}  // namespace

MethodEntry method_focal_learned() {
  return {
      .name = "focal-learned",
      .formula = "a_q = sqrt(d) / tau, tau = clip(b + mean(x . w), min sqrt(d), max sqrt(d))",
      .help = "Focal Attention with a temperature learned from the layer's input",
      .options = {{.name = "axis",
                   .value = std::string("auto"),
                   .help =
                       "rows of the mean: the document up to this row (prefix), this row (token), "
                       "the whole document (sequence; sees the future); auto is prefix in "
                       "decoders, sequence in encoders",
                   .domain = config::choices({"auto", "prefix", "token", "sequence"})},
                  {.name = "t0",
                   .value = 0.4,
                   .help = "temperature at the start: b = t0 sqrt(d)",
                   .domain = config::range(0.001, 1000)},
                  {.name = "min",
                   .value = 0.1,
                   .help = "lowest temperature",
                   .domain = config::range(0.001, 1000)},
                  {.name = "max",
                   .value = 2.0,
                   .help = "highest temperature",
                   .domain = config::range(0.001, 1000)}},
      .loaded = {{"t0", 1.0}},
      .plain = MethodOptions{{"t0", 1.0}},
      .variants = {{}, {{"axis", std::string("token")}}},
      .make = make_as<FocalLearned>};
}

}  // namespace tempera
