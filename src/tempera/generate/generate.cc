#include "tempera/generate/generate.h"

#include <torch/torch.h>

#include <algorithm>

#include "tempera/base/error.h"

namespace tempera::generate {
namespace {

using Prompts = std::vector<std::vector<int64_t>>;

// A long prompt goes in by pieces, which bounds the memory of a pass.
constexpr int64_t kPrefillRows = 2048;

void check(nn::Model& model, const Prompts& prompts, const GenerateOptions& options) {
  const nn::ModelConfig& config = model.config();
  TEMPERA_CHECK(!prompts.empty(), "no prompt given");
  TEMPERA_CHECK(options.max_tokens >= 0, "max-tokens: ", options.max_tokens,
                " given, at least 0 expected");
  TEMPERA_CHECK(config.output_count() == config.vocabulary, "the model chooses among ",
                config.output_count(), " classes and reads ", config.vocabulary,
                " tokens: it answers questions and cannot continue a text");
  for (const auto& prompt : prompts) {
    TEMPERA_CHECK(!prompt.empty(), "the prompt is empty: give at least one token");
    for (const int64_t token : prompt)
      TEMPERA_CHECK(token >= 0 && token < config.vocabulary, "the prompt has the token ", token,
                    ", and the model knows 0 to ", config.vocabulary - 1);
    TEMPERA_CHECK(
        config.max_length() == 0 || static_cast<int64_t>(prompt.size()) <= config.max_length(),
        "the prompt has ", prompt.size(), " tokens, and the model takes ", config.max_length());
  }
}

struct Padded {
  torch::Tensor tokens;  // (B, longest)
  torch::Tensor start;   // (B), undefined where all have the same length
};

Padded pad_in_front(const Prompts& prompts) {
  size_t longest = 0;
  bool same = true;
  for (const auto& prompt : prompts) {
    longest = std::max(longest, prompt.size());
    same = same && prompt.size() == prompts.front().size();
  }
  const auto batch = static_cast<int64_t>(prompts.size());
  Padded padded{torch::zeros({batch, static_cast<int64_t>(longest)}, torch::kInt64), {}};
  auto start = torch::zeros({batch}, torch::kInt64);
  for (int64_t b = 0; b < batch; ++b) {
    const auto& prompt = prompts[static_cast<size_t>(b)];
    const auto size = static_cast<int64_t>(prompt.size());
    start[b] = static_cast<int64_t>(longest) - size;
    padded.tokens[b]
        .narrow(0, static_cast<int64_t>(longest) - size, size)
        .copy_(torch::tensor(prompt, torch::kInt64));
  }
  if (!same) padded.start = start;
  return padded;
}

// Fills the cache and gives the logits (B, V) behind the last token.
torch::Tensor prefill(nn::Model& model, const torch::Tensor& tokens, nn::ModelCache& cache) {
  torch::Tensor hidden;
  for (const auto& piece : tokens.split(kPrefillRows, 1)) hidden = model.extend(piece, cache);
  return model.project(hidden.select(1, hidden.size(1) - 1));
}

Prompts run(nn::Model& model, const Prompts& prompts, const GenerateOptions& options,
            const TokenCallback& on_token) {
  check(model, prompts, options);
  const torch::NoGradGuard no_grad;
  const auto device = model.output_weight().device();
  const Padded padded = pad_in_front(prompts);
  const int64_t length = padded.tokens.size(1);
  int64_t room = options.max_tokens;
  if (model.config().max_length() > 0) room = std::min(room, model.config().max_length() - length);
  Prompts answers(prompts.size());
  if (room == 0) return answers;
  auto cache = model.make_cache(static_cast<int64_t>(prompts.size()), length + room,
                                padded.start.defined() ? padded.start.to(device) : padded.start);
  Sampler sampler(options.sampler);
  auto logits = prefill(model, padded.tokens.to(device), cache);
  std::vector<bool> done(prompts.size(), false);
  for (int64_t step = 0; step < room; ++step) {
    const auto tokens = sampler.sample(logits).to(torch::kCPU);
    for (size_t b = 0; b < prompts.size(); ++b) {
      const int64_t token = tokens[static_cast<int64_t>(b)].item<int64_t>();
      done[b] = done[b] || std::ranges::count(options.stop_tokens, token) > 0;
      if (done[b]) continue;
      answers[b].push_back(token);
      if (on_token && !on_token(token)) done[b] = true;
    }
    if (std::ranges::all_of(done, [](bool end) { return end; }) || step + 1 == room) break;
    logits = model.project(model.extend(tokens.to(device).unsqueeze(1), cache).squeeze(1));
  }
  return answers;
}

}  // namespace

std::vector<int64_t> generate(nn::Model& model, const std::vector<int64_t>& prompt,
                              const GenerateOptions& options, const TokenCallback& on_token) {
  return run(model, {prompt}, options, on_token).front();
}

Prompts generate_batch(nn::Model& model, const Prompts& prompts, const GenerateOptions& options) {
  return run(model, prompts, options, {});
}

}  // namespace tempera::generate
