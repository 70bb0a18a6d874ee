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

Json heads(const torch::Tensor& scale) {
  if (!scale.defined()) return nullptr;
  const auto values = scale.to(torch::kCPU, torch::kFloat64).contiguous();
  return std::vector<double>(values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
}

}  // namespace

Json measure(nn::Model& model, const text::Tokenizer& tokenizer, const HeldOutText& text,
             const MeasureOptions& options, const std::function<void(int64_t)>& report) {
  int64_t done = 0;
  Json result{{"perplexity", Json::object()}, {"passkey", nullptr}};
  for (const int64_t length : options.lengths) {
    const auto scores = perplexity(model, text, length, options.tokens,
                                   [&](int64_t tokens) { report(done + tokens); });
    result["perplexity"][std::to_string(length)] = eval::to_json(scores);
    done += scores.tokens;
    report(done);
  }
  if (options.passkey.cases > 0) {
    // Those of a length come one after the other.
    const auto of_length =
        options.passkey.cases * static_cast<int64_t>(options.passkey.depths.size());
    const auto grid = eval::score_passkey(model, tokenizer, options.passkey, [&](int64_t cases) {
      int64_t tokens = 0;
      for (const int64_t length : options.passkey.lengths) {
        tokens += std::min(cases, of_length) * length;
        cases -= std::min(cases, of_length);
      }
      report(done + tokens);
    });
    result["passkey"] = eval::to_json(grid);
  }
  return result;
}

Json learned_temperatures(nn::Model& model, const nn::Batch& batch) {
  const auto place = torch::zeros({batch.tokens.size(0), 1}, batch.tokens.options());
  const auto layers = model.inspect(batch, place, place);
  Json list = Json::array();
  for (size_t i = 0; i < layers.size(); ++i)
    list.push_back({{"layer", i},
                    {"q", heads(layers[i].a_q)},
                    {"k", heads(layers[i].a_k)},
                    {"v", heads(layers[i].a_v)}});
  return list;
}

}  // namespace tempera::adapt
