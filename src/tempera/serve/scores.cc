#include "tempera/serve/scores.h"

#include <algorithm>

#include "tempera/ops/torch.h"

namespace tempera::serve {
namespace {

// Programs that read JSON know no infinities.
constexpr double kLeast = -9999;

}  // namespace

std::vector<ScoredToken> score(const torch::Tensor& logits, const std::vector<int64_t>& ids,
                               int64_t top) {
  const auto chances = logits.to(torch::kCPU, torch::kFloat32).log_softmax(1).clamp_min(kLeast);
  const auto index = torch::tensor(ids, torch::kInt64).unsqueeze(1);
  const auto own = chances.gather(1, index);
  const auto [best, which] = chances.topk(std::min(std::max<int64_t>(top, 1), chances.size(1)), 1);
  const auto own_of = own.accessor<float, 2>();
  const auto best_of = best.accessor<float, 2>();
  const auto which_of = which.accessor<int64_t, 2>();
  std::vector<ScoredToken> tokens;
  for (int64_t row = 0; row < chances.size(0); ++row) {
    tokens.push_back({ids[static_cast<size_t>(row)], static_cast<double>(own_of[row][0])});
    for (int64_t i = 0; i < std::min(top, best.size(1)); ++i)
      tokens.back().top.emplace_back(which_of[row][i], static_cast<double>(best_of[row][i]));
  }
  return tokens;
}

Writer::Writer(const JobRequest& request) : request_(request), sampler_(request.sampler) {
  if (request.sampler.repetition_penalty != 1)
    for (const int64_t id : request.prompt) seen_[id] = true;
}

torch::Tensor Writer::adjusted(const torch::Tensor& logits) const {
  const bool plain = !request_.bias && seen_.empty() && request_.presence_penalty == 0 &&
                     request_.frequency_penalty == 0;
  if (plain) return logits;
  auto scores = logits.clone();
  float* const row = scores.data_ptr<float>();
  const auto penalty = static_cast<float>(request_.sampler.repetition_penalty);
  for (const auto& [id, was] : seen_) row[id] = row[id] > 0 ? row[id] / penalty : row[id] * penalty;
  for (const auto& [id, count] : written_)
    row[id] -= static_cast<float>(request_.presence_penalty +
                                  request_.frequency_penalty * static_cast<double>(count));
  if (request_.bias)
    for (const auto& [id, value] : *request_.bias) row[id] += static_cast<float>(value);
  return scores;
}

int64_t Writer::next(const torch::Tensor& logits) {
  const int64_t id = sampler_.sample(adjusted(logits)).item<int64_t>();
  ++written_[id];
  if (request_.sampler.repetition_penalty != 1) seen_[id] = true;
  return id;
}

}  // namespace tempera::serve
