#include "tempera/lens/view.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/ops/observe.h"
#include "tempera/ops/scale.h"
#include "tempera/ops/torch.h"

namespace tempera::lens {
namespace {

using torch::Tensor;

constexpr int64_t kLossRows = 256;  // whose logits are held at once

int64_t encoder_layers(const nn::ModelConfig& config) {
  return config.layer_count(AttentionKind::kEncoder);
}

// (heads, rows) of the only sequence; undefined: no scale.
Tensor scale_rows(const Tensor& rows, ops::Recipe recipe, const Tensor& operand, const Tensor& n) {
  if (recipe.w.defined() && !recipe.source.defined()) recipe.source = operand;
  const ops::RowScale scale{rows, recipe};
  if (!scale.present()) return {};
  const Tensor all = ops::finish(scale, n, torch::kFloat32);
  return all.expand({1, operand.size(1), operand.size(2)})[0].to(torch::kFloat32);
}

// How many keys each of the rows sees, (1, rows).
Tensor visible_counts(int64_t rows, int64_t keys, const ops::AttentionArgs& args) {
  const Tensor row = torch::arange(rows, torch::kInt64);
  const Tensor end = args.causal ? row + 1 : torch::full({rows}, keys, torch::kInt64);
  if (!args.window) return end.unsqueeze(0);
  const Tensor first = (row - (*args.window - 1)).clamp_min(0);
  return (torch::minimum(end, row + *args.window) - first).unsqueeze(0);
}

// Rows of 16 bits, and the step of each row: half a step is 1.5e-5 of the row's largest number.
std::pair<Tensor, Tensor> in_whole_numbers(const Tensor& rows) {
  constexpr double kMost = 32767, kLeastStep = 1e-30;
  const Tensor step = (rows.abs().amax(2, /*keepdim=*/true) / kMost).clamp_min(kLeastStep);
  return {(rows / step).round_().to(torch::kShort).contiguous(), step.squeeze(2)};
}

// Keeps what attention gets, in the order of its calls.
class Recorder final : public ops::AttentionObserver {
 public:
  // found: of the layers in front of the first that is computed.
  Recorder(const nn::ModelConfig& config, const LookOptions& options, std::vector<Attention> found)
      : config_(config), options_(options), found_(std::move(found)) {}

  void before(ops::AttentionArgs& args) override {
    check(args);
    args.want_entropy = args.want_max = true;
    if (options_.factors.empty()) return;
    const auto& factors = options_.factors.at(found_.size());
    TEMPERA_CHECK(std::ssize(factors) == args.q.size(1), factors.size(),
                  " factors of temperatures given for the ", args.q.size(1), " heads of a layer");
    const Tensor inverse =
        torch::tensor(factors, torch::kFloat64).reciprocal().to(torch::kFloat32).view({1, -1, 1});
    args.a_q = args.a_q.defined() ? args.a_q * inverse : inverse;
  }

  void after(const ops::AttentionArgs& args, const ops::AttentionResult& result) override {
    Attention kept = described();
    const Tensor n = visible_counts(args.q.size(2), args.k.size(2), args);
    const Tensor key_n =
        args.key_counts.defined() ? args.key_counts : n.narrow(1, 0, args.k.size(2));
    const Tensor a_q = scale_rows(args.a_q, args.q_recipe, args.q, n);
    const Tensor a_k = scale_rows(args.a_k, args.k_recipe, args.k, key_n);
    const double plain = 1 / std::sqrt(static_cast<double>(args.q.size(3)));
    const double scale = args.scale.value_or(plain);
    Tensor q = args.q[0].to(torch::kFloat32) * scale;
    Tensor k = args.k[0].to(torch::kFloat32);
    if (a_q.defined()) q.mul_(a_q.unsqueeze(2));
    if (a_k.defined()) k = k * a_k.unsqueeze(2);
    const auto rows = [](const Tensor& of) { return of[0].to(torch::kFloat32).contiguous(); };
    kept.inverse =
        torch::full({1, 1}, scale / plain, torch::kFloat32).expand({q.size(0), q.size(1)});
    if (a_q.defined()) kept.inverse = kept.inverse * a_q;
    kept.causal = args.causal;
    kept.window = args.window;
    kept.cap = args.cap;
    if (args.bias.defined()) kept.bias = args.bias[0].to(torch::kFloat32);
    kept.lse = rows(result.lse);
    kept.entropy = rows(result.entropy);
    kept.largest = rows(result.max);
    kept.first = first_weight(kept, q, k);
    if (is_long(q, k)) {
      rounded_ = true;
      std::tie(kept.q, kept.q_step) = in_whole_numbers(q);
      std::tie(kept.k, kept.k_step) = in_whole_numbers(k);
    } else {
      kept.q = q.contiguous();
      kept.k = k.contiguous();
    }
    found_.push_back(std::move(kept));
    if (options_.report) options_.report(std::ssize(found_));
  }

  std::vector<Attention> take() { return std::move(found_); }
  bool rounded() const { return rounded_; }

 private:
  static void check(const ops::AttentionArgs& args) {
    TEMPERA_CHECK(args.q.is_cpu(), "the lens computes on the CPU; give --device cpu");
    TEMPERA_CHECK(args.q.size(0) == 1, "the lens looks at one text, and ", args.q.size(0),
                  " were given");
    TEMPERA_CHECK(!args.post.defined() && !args.sinks.defined() && !args.documents.defined() &&
                      !args.key_start.defined() && !args.key_end.defined(),
                  "the lens looks at one text without padding, by plain softmax");
  }

  // The halves of an encoder-decoder: first one reads, then every layer of the other looks at
  // itself and at what was read.
  Attention described() const {
    const auto at = std::ssize(found_);
    if (config_.kind != nn::ModelKind::kEncoderDecoder)
      return {.role = AttentionRole::kSelf, .layer = at};
    if (at < encoder_layers(config_)) return {.role = AttentionRole::kEncoder, .layer = at};
    const int64_t after = at - encoder_layers(config_);
    return {.role = after % 2 == 0 ? AttentionRole::kDecoder : AttentionRole::kCross,
            .layer = after / 2};
  }

  bool is_long(const Tensor& q, const Tensor& k) const {
    const auto bytes = static_cast<uint64_t>(q.numel() + k.numel()) * sizeof(float);
    return bytes * static_cast<uint64_t>(attention_count(config_)) > options_.most_bytes;
  }

  static Tensor first_weight(const Attention& kept, const Tensor& q, const Tensor& k) {
    const Tensor key = k.narrow(1, 0, 1).repeat_interleave(q.size(0) / k.size(0), 0);
    Tensor logit = torch::bmm(q, key.transpose(1, 2)).squeeze(2);
    if (kept.bias.defined()) logit = logit + kept.bias.select(2, 0);
    if (kept.cap > 0) logit = kept.cap * (logit / kept.cap).tanh();
    Tensor weight = (logit - kept.lse).exp();
    if (kept.window && *kept.window < weight.size(1))
      weight.narrow(1, *kept.window, weight.size(1) - *kept.window).zero_();
    return weight;
  }

  const nn::ModelConfig& config_;
  const LookOptions& options_;
  std::vector<Attention> found_;
  bool rounded_ = false;
};

Tensor chances_after(const nn::Model& model, const Tensor& states) {
  return model.project(states).to(torch::kFloat32).log_softmax(-1);
}

void find_next(const nn::Model& model, int64_t count, View& view) {
  const Tensor chances = chances_after(model, view.output.slice(0, -1))[0];
  const auto [value, id] = chances.topk(std::min(count, chances.size(0)));
  for (int64_t i = 0; i < id.size(0); ++i)
    view.next.push_back({id[i].item<int64_t>(), value[i].item<double>()});
}

// What a pass can begin with: the layers in front of `layer` are as they were.
struct Begin {
  int64_t layer = 0;
  Tensor states = {};
};

Begin begin_of(const nn::ModelConfig& config, const LookOptions& options) {
  if (!options.as_it_is || options.as_it_is->states.empty() ||
      config.kind == nn::ModelKind::kEncoderDecoder)
    return {};
  const auto changed = std::ranges::find_if(options.factors, [](const auto& heads) {
    return std::ranges::any_of(heads, [](double factor) { return factor != 1; });
  });
  const auto same = std::min(changed - options.factors.begin(), attention_count(config) - 1);
  const View& view = *options.as_it_is;
  const auto kept = std::min(same / view.state_stride, std::ssize(view.states) - 1);
  return {kept * view.state_stride, view.states[static_cast<size_t>(kept)]};
}

// Keeps what every so many layers begin with, so that all of it has room.
nn::LayerObserver keep_states(const nn::ModelConfig& config, const LookOptions& options,
                              int64_t length, View& view) {
  if (options.state_bytes == 0 || config.kind == nn::ModelKind::kEncoderDecoder) return {};
  const int64_t layers = attention_count(config);
  const auto each = static_cast<uint64_t>(length * config.width) * sizeof(float);
  const auto room = static_cast<int64_t>(std::max<uint64_t>(options.state_bytes / each, 1));
  view.state_stride = (layers + room - 1) / room;
  return [&view, layers](int64_t layer, const Tensor& states) {
    if (layer + 1 < layers && (layer + 1) % view.state_stride == 0)
      view.states.push_back(states[0].clone());
  };
}

}  // namespace

void find_losses(nn::Model& model, const Tensor& tokens, View& view) {
  const torch::NoGradGuard no_grad;
  const int64_t length = tokens.size(0);
  view.losses = torch::full({length}, std::numeric_limits<float>::quiet_NaN());
  for (int64_t from = 0; from < length - 1; from += kLossRows) {
    const int64_t known = std::min(kLossRows, length - 1 - from);
    const Tensor chances = chances_after(model, view.output.narrow(0, from, known));
    view.losses.narrow(0, from + 1, known)
        .copy_(-chances.gather(1, tokens.narrow(0, from + 1, known).unsqueeze(1)).squeeze(1));
  }
  view.output.reset();
}

std::string_view role_name(AttentionRole role) {
  switch (role) {
    case AttentionRole::kSelf:
      return "self";
    case AttentionRole::kEncoder:
      return "encoder";
    case AttentionRole::kDecoder:
      return "decoder";
    case AttentionRole::kCross:
      return "cross";
  }
  return {};
}

MetricName name_of(Metric metric) {
  switch (metric) {
    case Metric::kEntropy:
      return {"entropy", "Entropy (nats)"};
    case Metric::kFirst:
      return {"first", "Weight on the first token"};
    case Metric::kKeys:
      return {"keys", "Effective number of keys"};
    case Metric::kLargest:
      return {"largest", "Largest logit"};
    case Metric::kTemperature:
      return {"temperature", "Temperature"};
  }
  return {};
}

Tensor Attention::metric(Metric metric) const {
  switch (metric) {
    case Metric::kEntropy:
      return entropy;
    case Metric::kFirst:
      return first;
    case Metric::kKeys:
      return entropy.exp();
    case Metric::kLargest:
      return largest;
    case Metric::kTemperature:
      return inverse.reciprocal().masked_fill(inverse <= 0,
                                              std::numeric_limits<double>::quiet_NaN());
  }
  return {};
}

Tensor Attention::over_rows(Metric wanted) const {
  const Tensor rows = metric(wanted);
  return wanted == Metric::kLargest ? rows.amax(1) : rows.to(torch::kFloat64).nanmean(1);
}

int64_t attention_count(const nn::ModelConfig& config) {
  if (config.kind != nn::ModelKind::kEncoderDecoder)
    return config.layer_count(config.kind == nn::ModelKind::kEncoder ? AttentionKind::kEncoder
                                                                     : AttentionKind::kCausal);
  return encoder_layers(config) + 2 * config.layer_count(AttentionKind::kCausal);
}

View look(nn::Model& model, const nn::Batch& batch, const LookOptions& options) {
  TEMPERA_CHECK(batch.tokens.defined() && batch.tokens.dim() == 2 && batch.tokens.size(0) == 1,
                "the lens looks at one text");
  const torch::NoGradGuard no_grad;
  View view;
  const int64_t length = batch.tokens.size(1);
  const Begin begin = begin_of(model.config(), options);
  nn::Batch read = batch;
  std::vector<Attention> known;
  if (begin.states.defined()) {
    read.known = begin.states.unsqueeze(0);
    read.known_layers = begin.layer;
    const auto& all = options.as_it_is->attentions;
    known.assign(all.begin(), all.begin() + begin.layer);
  }
  {
    Recorder recorder(model.config(), options, std::move(known));
    view.output = model.hidden(read, keep_states(model.config(), options, length, view))[0];
    view.attentions = recorder.take();
    view.rounded = recorder.rounded();
  }
  view.losses = torch::full({length}, std::numeric_limits<float>::quiet_NaN());
  // An encoder's rows see the tokens that they would be asked for.
  if (model.config().kind == nn::ModelKind::kEncoder) {
    view.output.reset();
    return view;
  }
  find_next(model, options.next_tokens, view);
  if (options.losses) find_losses(model, batch.tokens[0], view);
  return view;
}

}  // namespace tempera::lens
