#include "tempera/generate/generate.h"

#include <algorithm>
#include <optional>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera::generate {
namespace {

using Prompts = std::vector<std::vector<int64_t>>;

// A long prompt goes in by pieces, which bounds the memory of a pass.
constexpr int64_t kPrefillRows = 2048;

void check(nn::Model& model, const Prompts& prompts, const GenerateOptions& options) {
  const nn::ModelConfig& config = model.config();
  nn::require_decoder(model, "continuing a text");
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
  cache.set_prompt_rows(tokens.size(1));
  for (const auto& piece : tokens.split(kPrefillRows, 1)) hidden = model.extend(piece, cache);
  return model.project(hidden.select(1, hidden.size(1) - 1));
}

// Which tokens (B, V) each sequence has had, for the penalty on repetitions.
class Seen {
 public:
  Seen(const Prompts& prompts, int64_t vocabulary, double penalty) : penalty_(penalty) {
    if (penalty == 1) return;
    seen_ = torch::zeros({static_cast<int64_t>(prompts.size()), vocabulary}, torch::kBool);
    for (size_t b = 0; b < prompts.size(); ++b)
      seen_[static_cast<int64_t>(b)].index_fill_(0, torch::tensor(prompts[b], torch::kInt64), true);
  }
  void add(const torch::Tensor& tokens) {
    if (seen_.defined()) seen_.scatter_(1, tokens.unsqueeze(1), true);
  }
  // Scores of seen tokens over the penalty, or times it where they are negative.
  torch::Tensor apply(const torch::Tensor& logits) const {
    if (!seen_.defined()) return logits;
    const auto lowered = torch::where(logits > 0, logits / penalty_, logits * penalty_);
    return torch::where(seen_.to(logits.device()), lowered, logits);
  }

 private:
  double penalty_;
  torch::Tensor seen_;
};

// What the model has read: the sequences so far, or the newer part of them.
class Context {
 public:
  Context(nn::Model& model, const Prompts& prompts, int64_t window, int64_t room)
      : model_(model), sequences_(prompts), window_(window), room_(room) {
    begin(/*full=*/false);
  }

  // (B, V): the scores of the next token.
  const torch::Tensor& logits() const { return logits_; }

  void add(const torch::Tensor& tokens) {
    for (size_t b = 0; b < sequences_.size(); ++b)
      sequences_[b].push_back(tokens[static_cast<int64_t>(b)].item<int64_t>());
    --room_;
    if (cache_->length() == cache_->capacity()) return begin(/*full=*/true);
    const auto next = tokens.to(device()).unsqueeze(1);
    logits_ = model_.project(model_.extend(next, *cache_).squeeze(1));
  }

 private:
  torch::Device device() const { return model_.output_weight().device(); }

  void begin(bool full) {
    Prompts newest;
    for (const auto& sequence : sequences_) {
      auto keep = static_cast<int64_t>(sequence.size());
      if (window_ > 0 && (full || keep > window_))
        keep = std::min(keep, std::max<int64_t>(1, window_ / 2));
      newest.emplace_back(sequence.end() - keep, sequence.end());
    }
    const Padded padded = pad_in_front(newest);
    const int64_t length = padded.tokens.size(1);
    const int64_t capacity = window_ > 0 ? std::min(window_, length + room_) : length + room_;
    cache_ = model_.make_cache(static_cast<int64_t>(newest.size()), capacity,
                               padded.start.defined() ? padded.start.to(device()) : padded.start);
    logits_ = prefill(model_, padded.tokens.to(device()), *cache_);
  }

  nn::Model& model_;
  Prompts sequences_;
  int64_t window_;
  int64_t room_;
  std::optional<nn::ModelCache> cache_;
  torch::Tensor logits_;
};

}  // namespace

std::vector<int64_t> Answer::ids() const {
  std::vector<int64_t> list;
  for (const Token& token : tokens) list.push_back(token.id);
  return list;
}

std::vector<Answer> generate(nn::Model& model, const Prompts& prompts,
                             const GenerateOptions& options, const TokenCallback& on_token) {
  check(model, prompts, options);
  const torch::NoGradGuard no_grad;
  const int64_t window = options.window.value_or(model.config().context);
  TEMPERA_CHECK(window >= 0, "window: ", window, " given, at least 0 expected");
  int64_t room = options.max_tokens;
  if (window == 0 && model.config().max_length() > 0) {
    for (const auto& prompt : prompts)
      room = std::min(room, model.config().max_length() - static_cast<int64_t>(prompt.size()));
  }
  std::vector<Answer> answers(prompts.size());
  if (room == 0) return answers;
  Context context(model, prompts, window, room);
  Sampler sampler(options.sampler);
  Seen seen(prompts, model.config().vocabulary, options.sampler.repetition_penalty);
  for (int64_t step = 0; step < room; ++step) {
    const auto& logits = context.logits();
    const auto tokens = sampler.sample(seen.apply(logits)).to(torch::kCPU);
    const auto chances = logits.to(torch::kCPU, torch::kFloat32)
                             .log_softmax(1)
                             .gather(1, tokens.unsqueeze(1))
                             .squeeze(1);
    for (size_t b = 0; b < prompts.size(); ++b) {
      const auto row = static_cast<int64_t>(b);
      const Token token{tokens[row].item<int64_t>(), chances[row].item<double>()};
      Answer& answer = answers[b];
      answer.stopped = answer.stopped || std::ranges::count(options.stop_tokens, token.id) > 0;
      if (answer.stopped) continue;
      answer.tokens.push_back(token);
      if (on_token && !on_token(b, token)) answer.stopped = true;
    }
    if (std::ranges::all_of(answers, &Answer::stopped) || step + 1 == room) break;
    seen.add(tokens);
    context.add(tokens);
  }
  return answers;
}

}  // namespace tempera::generate
