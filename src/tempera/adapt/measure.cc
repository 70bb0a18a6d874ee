#include "tempera/adapt/measure.h"

#include <nlohmann/json.hpp>

#include "tempera/eval/report.h"
#include "tempera/ops/torch.h"

namespace tempera::adapt {
namespace {

using Json = nlohmann::ordered_json;

// The first tokens of the documents, `wanted` of them in all.
std::vector<eval::Document> some_of(const std::vector<eval::Document>& documents, int64_t wanted) {
  std::vector<eval::Document> some;
  for (const auto& document : documents) {
    const auto size = std::min(static_cast<int64_t>(document.size()), wanted);
    if (size < 2) break;
    some.emplace_back(document.begin(), document.begin() + size);
    wanted -= size;
  }
  return some;
}

eval::TextScores perplexity(nn::Model& model, const HeldOutText& text, int64_t length,
                            int64_t tokens, const std::function<void(int64_t)>& report) {
  if (text.own)
    return eval::score_held_out_text(model, *text.own(length),
                                     std::max<int64_t>(1, tokens / length));
  return eval::score_documents(model, some_of(text.documents, tokens), {length, length}, report);
}

Json heads(const torch::Tensor& scale) {
  if (!scale.defined()) return nullptr;
  const auto values = scale.to(torch::kCPU, torch::kFloat64).contiguous();
  return std::vector<double>(values.data_ptr<double>(), values.data_ptr<double>() + values.numel());
}

}  // namespace

Json measure(nn::Model& model, const text::Tokenizer& tokenizer, const HeldOutText& text,
             const MeasureOptions& options, const std::function<void(double)>& report) {
  const bool with_passkey = options.passkey.cases > 0;
  const double parts = static_cast<double>(options.lengths.size()) + (with_passkey ? 1 : 0);
  double done = 0;
  const auto part_done = [&](double share) { report((done + std::min(share, 1.0)) / parts); };
  Json result{{"perplexity", Json::object()}, {"passkey", nullptr}};
  for (const int64_t length : options.lengths) {
    const auto scores = perplexity(model, text, length, options.tokens, [&](int64_t tokens) {
      part_done(static_cast<double>(tokens) / static_cast<double>(options.tokens));
    });
    result["perplexity"][std::to_string(length)] = eval::to_json(scores);
    done += 1;
    part_done(0);
  }
  if (with_passkey) {
    const auto all = static_cast<double>(options.passkey.all_cases());
    const auto grid = eval::score_passkey(model, tokenizer, options.passkey, [&](int64_t cases) {
      part_done(static_cast<double>(cases) / all);
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
