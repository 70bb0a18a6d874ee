#include "tempera/adapt/measure.h"

#include <nlohmann/json.hpp>

#include "tempera/eval/report.h"
#include "tempera/ops/torch.h"

namespace tempera::adapt {
namespace {

using Json = nlohmann::ordered_json;

eval::TextScores perplexity(nn::Model& model, const HeldOutText& text, int64_t length,
                            int64_t tokens, const std::function<void(int64_t)>& report) {
  if (text.own)
    return eval::score_held_out_text(model, *text.own(length),
                                     std::max<int64_t>(1, tokens / length));
  return eval::score_documents(model, text.documents, {length, length}, report);
}

std::vector<double> heads(const torch::Tensor& scale) {
  if (!scale.defined()) return {};
  const auto values = scale.to(torch::kCPU, torch::kFloat64).contiguous();
  return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
}

}  // namespace

Measure measure(nn::Model& model, const text::Tokenizer& tokenizer, const HeldOutText& text,
                const MeasureOptions& options, const std::function<void(int64_t)>& report) {
  int64_t done = 0;
  Measure result;
  for (const int64_t length : options.lengths) {
    auto scores = perplexity(model, text, length, options.tokens,
                             [&](int64_t tokens) { report(done + tokens); });
    done += scores.tokens;
    result.perplexity[length] = std::move(scores);
    report(done);
  }
  if (options.passkey.cases > 0) {
    // Those of a length come one after the other.
    const auto of_length =
        options.passkey.cases * static_cast<int64_t>(options.passkey.depths.size());
    result.passkey = eval::score_passkey(model, tokenizer, options.passkey, [&](int64_t cases) {
      int64_t tokens = 0;
      for (const int64_t length : options.passkey.lengths) {
        tokens += std::min(cases, of_length) * length;
        cases -= std::min(cases, of_length);
      }
      report(done + tokens);
    });
  }
  return result;
}

Json to_json(const Measure& measure) {
  Json perplexity = Json::object();
  for (const auto& [length, scores] : measure.perplexity) {
    Json entry = eval::to_json(scores);
    for (const auto& block : scores.blocks)
      entry["blocks"].push_back(Json::array({block.loss, block.tokens}));
    perplexity[std::to_string(length)] = std::move(entry);
  }
  return {{"perplexity", std::move(perplexity)},
          {"passkey", measure.passkey ? eval::to_json(*measure.passkey) : Json()}};
}

Measure measure_of(const Json& json) {
  Measure measure;
  for (const auto& [length, scores] : json.at("perplexity").items()) {
    auto& read = measure.perplexity[std::stoll(length)];
    read = eval::text_scores_of(scores);
    if (!scores.contains("blocks")) continue;
    for (const Json& block : scores.at("blocks"))
      read.blocks.push_back({.loss = block.at(0), .tokens = block.at(1)});
  }
  if (json.at("passkey").is_object()) measure.passkey = eval::grid_of(json.at("passkey"));
  return measure;
}

std::vector<LayerTemperatures> learned_temperatures(nn::Model& model, const nn::Batch& batch) {
  const auto place = torch::zeros({batch.tokens.size(0), 1}, batch.tokens.options());
  std::vector<LayerTemperatures> layers;
  for (const auto& layer : model.inspect(batch, place, place))
    layers.push_back({.q = heads(layer.a_q), .k = heads(layer.a_k), .v = heads(layer.a_v)});
  return layers;
}

}  // namespace tempera::adapt
