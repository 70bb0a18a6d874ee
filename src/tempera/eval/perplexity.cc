#include "tempera/eval/perplexity.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

#include "tempera/base/error.h"
#include "tempera/data/corpus.h"
#include "tempera/data/tensors.h"
#include "tempera/data/text.h"
#include "tempera/eval/held_out.h"
#include "tempera/ops/torch.h"

namespace tempera::eval {
namespace {

constexpr int64_t kLossBlock = 1024;
// Enough rows to keep the matrix products busy, few enough for a small memory.
constexpr int64_t kTokensPerPass = 8192;
constexpr int64_t kFirstBucket = 16;
// A last bucket with this many times fewer tokens than the one before it has too few.
constexpr int64_t kFewer = 8;

int64_t bucket_of(int64_t seen) {
  return seen < kFirstBucket ? 1
                             : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(seen)));
}

// A piece of a document: the tokens the model reads, of which the last `scored` predict.
struct Window {
  const Document* document;
  int64_t begin;
  int64_t length;
  int64_t scored;
};

// Reads tokens [begin, begin + length), predicts [begin + 1, begin + length + 1).
std::vector<Window> windows_of(const Document& document, const WindowOptions& options) {
  std::vector<Window> list;
  const int64_t last = static_cast<int64_t>(document.size()) - 1;  // the last predicted token
  int64_t done = 0;                                                // tokens up to it are predicted
  for (int64_t begin = 0; done < last; begin += options.stride) {
    const int64_t end = std::min(begin + options.window, last);
    list.push_back({&document, begin, end - begin, end - done});
    done = end;
  }
  return list;
}

// Windows as one batch; shorter ones are filled up behind, where nothing looks.
nn::Batch batch_of(std::span<const Window> windows) {
  int64_t longest = 0;
  bool same = true;
  for (const auto& window : windows) {
    longest = std::max(longest, window.length);
    same = same && window.length == windows[0].length;
  }
  const auto rows = static_cast<int64_t>(windows.size());
  nn::Batch batch;
  batch.tokens = torch::zeros({rows, longest}, torch::kInt64);
  batch.targets = torch::full({rows, longest}, data::kIgnored, torch::kInt64);
  auto end = torch::zeros({rows}, torch::kInt64);
  auto tokens = batch.tokens.accessor<int64_t, 2>();
  auto targets = batch.targets.accessor<int64_t, 2>();
  for (int64_t r = 0; r < rows; ++r) {
    const Window& window = windows[static_cast<size_t>(r)];
    const int32_t* ids = window.document->data() + window.begin;
    for (int64_t t = 0; t < window.length; ++t) {
      tokens[r][t] = ids[t];
      if (t >= window.length - window.scored) targets[r][t] = ids[t + 1];
    }
    end[r] = window.length;
  }
  if (!same) batch.key_end = end;
  return batch;
}

void check(nn::Model& model, std::span<const Document> documents, const WindowOptions& options) {
  const nn::ModelConfig& config = model.config();
  nn::require_decoder(model, "perplexity");
  if (options.window < 1 || options.stride < 1 || options.stride > options.window)
    throw UsageError(concat("a window of ", options.window, " tokens and a stride of ",
                            options.stride,
                            " given; the stride must be from 1 to the window, so that every token "
                            "is predicted"));
  if (config.max_length() > 0 && options.window > config.max_length())
    throw UsageError(concat("a window of ", options.window,
                            " tokens given; the model has learned "
                            "positions for ",
                            config.max_length()));
  TEMPERA_CHECK(config.output_count() == config.vocabulary, "the model chooses among ",
                config.output_count(), " classes and reads ", config.vocabulary,
                " tokens: it answers questions and has no perplexity of text");
  for (const auto& document : documents)
    for (const int32_t id : document)
      TEMPERA_CHECK(id >= 0 && id < config.vocabulary, "the text has the token ", id,
                    ", and the model knows 0 to ", config.vocabulary - 1,
                    ": the tokenizer is not the model's");
}

Document read_document(const data::Corpus& corpus, int64_t index,
                       const text::Tokenizer& tokenizer) {
  const int64_t begin = corpus.document_begin(index);
  std::vector<int64_t> ids(static_cast<size_t>(corpus.document_begin(index + 1) - begin));
  corpus.read(begin, ids);
  if (!ids.empty() && ids.back() == tokenizer.special().end_of_text) ids.pop_back();
  Document document(ids.size());
  std::ranges::transform(ids, document.begin(),
                         [](int64_t id) { return static_cast<int32_t>(id); });
  return document;
}

// Rows that see keys and values as a cache of the model's keeps them. Padding is behind them.
torch::Tensor losses_of(nn::Model& model, const nn::Batch& batch) {
  if (model.cache_type() == model.compute_type()) return model.token_losses(batch);
  auto cache = model.make_cache(batch.tokens.size(0), batch.tokens.size(1));
  return model.token_losses(model.extend(batch.tokens, cache), batch.targets);
}

}  // namespace

void LossByPosition::add(const torch::Tensor& losses, const nn::Batch& batch) {
  const auto kept = losses.to(torch::kCPU, torch::kFloat32).contiguous();
  const auto wanted = batch.targets.to(torch::kCPU).contiguous();
  const auto loss = kept.accessor<float, 2>();
  const auto target = wanted.accessor<int64_t, 2>();
  torch::Tensor lengths;
  if (batch.documents.defined()) lengths = batch.documents.to(torch::kCPU, torch::kInt64);
  for (int64_t r = 0; r < kept.size(0); ++r) {
    int64_t begin = 0, end = kept.size(1), document = 0;
    if (lengths.defined()) end = lengths[r][document].item<int64_t>();
    for (int64_t t = 0; t < kept.size(1); ++t) {
      while (t == end) {
        begin = end;
        end += lengths[r][++document].item<int64_t>();
      }
      if (t % kLossBlock == 0) blocks_.emplace_back();
      if (target[r][t] < 0) continue;
      const int64_t seen = t - begin + 1;
      most_seen_ = std::max(most_seen_, seen);
      Sum& sum = sums_[bucket_of(seen)];
      sum.loss += static_cast<double>(loss[r][t]);
      ++sum.tokens;
      blocks_.back().loss += static_cast<double>(loss[r][t]);
      ++blocks_.back().tokens;
    }
  }
}

TextScores LossByPosition::scores() const {
  auto sums = sums_;
  if (sums.size() > 1) {
    const auto last = std::prev(sums.end()), before = std::prev(last);
    if (last->second.tokens < before->second.tokens / kFewer) {
      before->second.loss += last->second.loss;
      before->second.tokens += last->second.tokens;
      sums.erase(last);
    }
  }
  TextScores result;
  double total = 0;
  for (const auto& [first, sum] : sums) {
    result.by_position.push_back({first, first == 1 ? kFirstBucket - 1 : 2 * first - 1, sum.tokens,
                                  sum.loss / static_cast<double>(sum.tokens)});
    total += sum.loss;
    result.tokens += sum.tokens;
  }
  if (!result.by_position.empty()) result.by_position.back().last = most_seen_;
  result.loss = total / static_cast<double>(std::max<int64_t>(result.tokens, 1));
  result.perplexity = std::exp(result.loss);
  result.blocks = blocks_;
  std::erase_if(result.blocks, [](const LossBlock& block) { return block.tokens == 0; });
  return result;
}

std::vector<Document> read_documents(std::span<const std::filesystem::path> files,
                                     const text::Tokenizer& tokenizer, int64_t max_tokens) {
  std::vector<Document> documents;
  int64_t left = max_tokens > 0 ? max_tokens : std::numeric_limits<int64_t>::max();
  const auto take = [&](Document document) {
    if (static_cast<int64_t>(document.size()) > left) document.resize(static_cast<size_t>(left));
    left -= static_cast<int64_t>(document.size());
    documents.push_back(std::move(document));
  };
  for (const auto& file : files) {
    if (data::is_shards(file)) {
      const auto corpus = data::Corpus::open(std::span(&file, 1), &tokenizer);
      for (int64_t i = 0; i < corpus.documents() && left > 0; ++i)
        take(read_document(corpus, i, tokenizer));
      continue;
    }
    data::check_readable_file(file);
    data::for_each_document(file, [&](std::string_view text) {
      if (left <= 0) return;
      Document document;
      tokenizer.encode(text, document, {.add_special = true});
      take(std::move(document));
    });
  }
  return documents;
}

TextScores score_documents(nn::Model& model, std::span<const Document> documents,
                           const WindowOptions& options,
                           const std::function<void(int64_t tokens)>& report) {
  check(model, documents, options);
  const torch::NoGradGuard no_grad;
  model.eval();
  const auto device = model.output_weight().device();
  std::vector<Window> windows;
  for (const auto& document : documents) {
    const auto more = windows_of(document, options);
    windows.insert(windows.end(), more.begin(), more.end());
  }
  TEMPERA_CHECK(!windows.empty(), "no token to predict: the text has no document of two tokens");
  // Of equal length together, so that little is filled up.
  std::ranges::stable_sort(windows, std::greater<>(), &Window::length);
  LossByPosition sums;
  int64_t done = 0;
  for (size_t first = 0; first < windows.size();) {
    const auto rows = static_cast<size_t>(
        std::max<int64_t>(1, kTokensPerPass / std::max<int64_t>(windows[first].length, 1)));
    const auto some = std::span(windows).subspan(first, std::min(rows, windows.size() - first));
    nn::Batch batch = batch_of(some);
    for (torch::Tensor* tensor : {&batch.tokens, &batch.targets, &batch.key_end})
      if (tensor->defined()) *tensor = tensor->to(device);
    sums.add(losses_of(model, batch), batch);
    for (const auto& window : some) done += window.scored;
    if (report) report(done);
    first += some.size();
  }
  return sums.scores();
}

TextScores score_held_out_text(nn::Model& model, const data::Dataset& dataset, int64_t rows) {
  TEMPERA_CHECK(!dataset.held_out_sets().empty(), dataset.name(), ": nothing is held out");
  const torch::NoGradGuard no_grad;
  model.eval();
  const auto& set = dataset.held_out_sets()[0];
  const int64_t all = rows > 0 ? std::min(rows, set.rows) : set.rows;
  const int64_t step = std::max<int64_t>(1, kTokensPerPass / std::max<int64_t>(set.length, 1));
  const auto device = model.output_weight().device();
  LossByPosition sums;
  for (int64_t first = 0; first < all; first += step) {
    const nn::Batch batch =
        data::to_model_batch(dataset.held_out(0, first, std::min(step, all - first)), device);
    sums.add(model.token_losses(batch), batch);
  }
  return sums.scores();
}

int64_t predicted_bytes(std::span<const Document> documents, const text::Tokenizer& tokenizer) {
  int64_t bytes = 0;
  std::string text;
  for (const auto& document : documents) {
    if (document.empty()) continue;
    text.clear();
    tokenizer.decode(std::span(document).subspan(1), text);
    bytes += static_cast<int64_t>(text.size());
  }
  return bytes;
}

}  // namespace tempera::eval
