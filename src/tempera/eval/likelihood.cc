#include "tempera/eval/likelihood.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "tempera/base/error.h"
#include "tempera/ops/torch.h"

namespace tempera::eval {
namespace {

// Enough rows to keep the matrix products busy, few enough for a small memory.
constexpr int64_t kRowsPerPass = 4096;
// Rows of keys and values, copied for each member of a group, that lie in the memory at once.
constexpr int64_t kCachedRowsPerPass = 8192;
// Rows whose logits are held at once.
constexpr int64_t kRowsOfLogits = 512;
// With so many rows a pass is efficient, and ends before much shorter rows that would be filled up.
constexpr int64_t kEnoughRows = 384;
// A shorter common beginning is not worth a cache.
constexpr int64_t kShortestPrefix = 4;

// What the model reads of a request: all tokens but the last; its last `scored` rows predict.
struct Input {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  size_t request = 0;

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  int64_t scored() const { return static_cast<int64_t>(targets.size()); }
};

// Inputs that begin with the same `prefix` tokens, none of which predicts what is scored.
struct Group {
  std::vector<Input> inputs;
  int64_t prefix = 0;
};

void check_request(const Request& request, int64_t vocabulary) {
  TEMPERA_CHECK(!request.context.empty() && !request.continuation.empty(), "a context of ",
                request.context.size(), " tokens and a continuation of ",
                request.continuation.size(), " given; both need one at least");
  for (const auto* ids : {&request.context, &request.continuation})
    for (const int32_t id : *ids)
      TEMPERA_CHECK(id >= 0 && id < vocabulary, "the text has the token ", id,
                    ", and the model knows 0 to ", vocabulary - 1,
                    ": the tokenizer is not the model's");
}

Input input_of(const Request& request, size_t index, int64_t max_length) {
  Input input{.tokens = request.context, .targets = request.continuation, .request = index};
  input.tokens.insert(input.tokens.end(), request.continuation.begin(),
                      request.continuation.end() - 1);
  if (max_length == 0 || input.length() <= max_length) return input;
  TEMPERA_CHECK(input.scored() <= max_length, "a continuation of ", input.scored(),
                " tokens given, and the model reads ", max_length, " at once");
  input.tokens.erase(input.tokens.begin(), input.tokens.end() - max_length);
  return input;
}

int64_t common_prefix(const std::vector<Input>& inputs) {
  const auto& first = inputs.front().tokens;
  auto shared = inputs.front().length();
  for (const auto& input : inputs) {
    const auto differs = std::ranges::mismatch(first, input.tokens).in1 - first.begin();
    shared = std::min({shared, static_cast<int64_t>(differs), input.length() - input.scored()});
  }
  return shared;
}

std::vector<Group> groups_of(std::span<const Request> requests, int64_t max_length) {
  std::vector<Group> groups;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i == 0 || requests[i].group != requests[i - 1].group) groups.emplace_back();
    groups.back().inputs.push_back(input_of(requests[i], i, max_length));
  }
  for (auto& group : groups)
    if (group.inputs.size() > 1) group.prefix = common_prefix(group.inputs);
  return groups;
}

// A cache is one rank's: those that share sequences read each as a whole.
bool can_share(nn::Model& model) {
  if (model.shares_context()) return false;
  return std::ranges::all_of(model.methods(),
                             [](const Method* method) { return method->cacheable(); });
}

// An input's tokens from `from` on; those before are in sequence `sequence` of a cache.
struct Suffix {
  const Input* input;
  int64_t from = 0;
  int64_t sequence = 0;

  int64_t length() const { return input->length() - from; }
};

// Calls score(items) with runs of items, sorted from long to short, that are filled up to the
// longest of them: as many as keep (extra + longest) * items within the bound, at least one.
template <class Item, class Length, class Score>
void in_batches(std::span<const Item> items, int64_t extra, int64_t bound, Length length,
                Score score) {
  while (!items.empty()) {
    const int64_t longest = length(items.front());
    size_t count = 1;
    for (; count < items.size(); ++count) {
      const auto rows = static_cast<int64_t>(count + 1) * (extra + longest);
      const bool much_shorter = 5 * length(items[count]) < 4 * longest;
      const bool enough = static_cast<int64_t>(count) * longest >= kEnoughRows;
      if (rows > bound || (enough && much_shorter)) break;
    }
    score(items.first(count));
    items = items.subspan(count);
  }
}

// Beside each other; shorter ones are filled up behind, where nothing looks.
torch::Tensor tokens_of(std::span<const Suffix> suffixes) {
  const int64_t width = suffixes.front().length();  // the longest
  auto tokens = torch::zeros({static_cast<int64_t>(suffixes.size()), width}, torch::kInt64);
  auto rows = tokens.accessor<int64_t, 2>();
  for (size_t r = 0; r < suffixes.size(); ++r)
    for (int64_t t = 0; t < suffixes[r].length(); ++t)
      rows[static_cast<int64_t>(r)][t] =
          suffixes[r].input->tokens[static_cast<size_t>(suffixes[r].from + t)];
  return tokens;
}

class Scorer {
 public:
  Scorer(nn::Model& model, size_t requests, const LikelihoodOptions& options)
      : model_(model),
        options_(options),
        device_(model.output_weight().device()),
        results_(requests, Likelihood{.log_probability = 0, .greedy = true}) {}

  // Whole inputs, from long to short.
  void score_whole(std::span<const Suffix> inputs) {
    nn::Batch batch;
    batch.tokens = tokens_of(inputs).to(device_);
    std::vector<int64_t> lengths;
    for (const auto& input : inputs) lengths.push_back(input.length());
    if (lengths.back() < lengths.front())
      batch.key_end = torch::tensor(lengths, torch::kInt64).to(device_);
    take(hidden(batch), inputs);
  }

  // The beginnings, from long to short, go into a cache, padded in front; the ends continue copies
  // of it.
  void score_shared(std::span<const Group* const> groups) {
    const int64_t longest = groups.front()->prefix;
    const auto count = static_cast<int64_t>(groups.size());
    auto tokens = torch::zeros({count, longest}, torch::kInt64);
    auto start = torch::zeros({count}, torch::kInt64);
    auto rows = tokens.accessor<int64_t, 2>();
    std::vector<Suffix> suffixes;
    for (int64_t g = 0; g < count; ++g) {
      const Group& group = *groups[static_cast<size_t>(g)];
      const int64_t padding = longest - group.prefix;
      start[g] = padding;
      for (int64_t t = 0; t < group.prefix; ++t)
        rows[g][padding + t] = group.inputs[0].tokens[static_cast<size_t>(t)];
      for (const auto& input : group.inputs) suffixes.push_back({&input, group.prefix, g});
    }
    std::ranges::stable_sort(suffixes, std::greater<>(), &Suffix::length);
    const bool padded = groups.back()->prefix < longest;
    auto cache = model_.make_cache(count, longest + suffixes.front().length(),
                                   padded ? start.to(device_) : torch::Tensor());
    model_.extend(tokens.to(device_), cache);
    in_batches(
        std::span<const Suffix>(suffixes), longest, kCachedRowsPerPass,
        [](const Suffix& suffix) { return suffix.length(); },
        [&](std::span<const Suffix> some) {
          std::vector<int64_t> sequences;
          for (const auto& suffix : some) sequences.push_back(suffix.sequence);
          auto copy = cache.select(sequences);
          take(model_.extend(tokens_of(some).to(device_), copy), some);
        });
  }

  std::vector<Likelihood> results() && { return std::move(results_); }

 private:
  // Of rows that see keys and values as a cache of the model's keeps them.
  torch::Tensor hidden(const nn::Batch& batch) {
    if (model_.cache_type() == model_.compute_type()) return model_.whole_hidden(batch);
    auto cache = model_.make_cache(batch.tokens.size(0), batch.tokens.size(1));
    return model_.extend(batch.tokens, cache);
  }

  // hidden: (suffixes, rows, width).
  void take(const torch::Tensor& hidden, std::span<const Suffix> suffixes) {
    std::vector<int64_t> rows, targets;
    std::vector<size_t> requests;
    for (size_t i = 0; i < suffixes.size(); ++i) {
      const Input& input = *suffixes[i].input;
      const int64_t first =
          static_cast<int64_t>(i) * hidden.size(1) + suffixes[i].length() - input.scored();
      for (int64_t s = 0; s < input.scored(); ++s) {
        rows.push_back(first + s);
        targets.push_back(input.targets[static_cast<size_t>(s)]);
        requests.push_back(input.request);
      }
    }
    const auto picked =
        hidden.flatten(0, 1).index_select(0, torch::tensor(rows, torch::kInt64).to(device_));
    const auto wanted = torch::tensor(targets, torch::kInt64).to(device_);
    for (int64_t begin = 0; begin < picked.size(0); begin += kRowsOfLogits) {
      const int64_t end = std::min(begin + kRowsOfLogits, picked.size(0));
      add(picked.slice(0, begin, end), wanted.slice(0, begin, end),
          std::span(requests).subspan(static_cast<size_t>(begin)));
    }
    done_ += static_cast<int64_t>(suffixes.size());
    if (options_.report) options_.report(done_);
  }

  void add(const torch::Tensor& hidden, const torch::Tensor& targets,
           std::span<const size_t> requests) {
    const auto logits = model_.project(hidden).to(torch::kFloat32);
    const auto right = logits.argmax(1).eq(targets).to(torch::kCPU);
    const auto chosen = logits.gather(1, targets.unsqueeze(1)).squeeze(1);
    const auto chances = (chosen - logits.logsumexp(1)).to(torch::kCPU);
    const auto* greedy = right.data_ptr<bool>();
    const auto* chance = chances.data_ptr<float>();
    for (int64_t i = 0; i < targets.size(0); ++i) {
      Likelihood& result = results_[requests[static_cast<size_t>(i)]];
      result.log_probability += static_cast<double>(chance[i]);
      result.greedy = result.greedy && greedy[i];
    }
  }

  nn::Model& model_;
  const LikelihoodOptions& options_;
  torch::Device device_;
  std::vector<Likelihood> results_;
  int64_t done_ = 0;
};

void score_apart(Scorer& scorer, std::vector<Suffix> inputs) {
  std::ranges::stable_sort(inputs, std::greater<>(), &Suffix::length);
  in_batches(
      std::span<const Suffix>(inputs), 0, kRowsPerPass,
      [](const Suffix& input) { return input.length(); },
      [&](std::span<const Suffix> some) { scorer.score_whole(some); });
}

void score_together(Scorer& scorer, std::vector<const Group*> groups) {
  std::ranges::stable_sort(groups, std::greater<>(), &Group::prefix);
  in_batches(
      std::span<const Group* const>(groups), 0, kRowsPerPass,
      [](const Group* group) { return group->prefix; },
      [&](std::span<const Group* const> some) { scorer.score_shared(some); });
}

}  // namespace

std::vector<Likelihood> score_requests(nn::Model& model, std::span<const Request> requests,
                                       const LikelihoodOptions& options) {
  nn::require_decoder(model, "the likelihood of a text");
  const auto& config = model.config();
  TEMPERA_CHECK(config.output_count() == config.vocabulary, "the model chooses among ",
                config.output_count(), " classes and reads ", config.vocabulary,
                " tokens: it answers questions and gives no text a likelihood");
  for (const auto& request : requests) check_request(request, config.vocabulary);
  const torch::NoGradGuard no_grad;
  model.eval();
  const int64_t most = config.max_length() > 0 && options.max_length > 0
                           ? std::min(config.max_length(), options.max_length)
                           : options.max_length;
  const auto groups = groups_of(requests, most);
  const bool share = can_share(model);
  std::vector<Suffix> apart;
  std::vector<const Group*> together;
  for (const auto& group : groups) {
    if (share && group.prefix >= kShortestPrefix) {
      together.push_back(&group);
      continue;
    }
    for (const auto& input : group.inputs) apart.push_back({&input});
  }
  Scorer scorer(model, requests.size(), options);
  score_together(scorer, std::move(together));
  score_apart(scorer, std::move(apart));
  return std::move(scorer).results();
}

}  // namespace tempera::eval
