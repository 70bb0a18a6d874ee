#include "tempera/data/text_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/data/permutation.h"
#include "tempera/data/random.h"

namespace tempera::data {
namespace {

// Fewer documents than these are too coarse to hold some out.
constexpr int64_t kManyDocuments = 100;
// One token to read and one to predict.
constexpr int64_t kFewestHeldOut = 2;

// Holds out whole documents, chosen by a fixed permutation, until they have the tokens wanted.
// None where the documents are too few or too long for that.
std::optional<TextSplit> split_by_documents(const Corpus& corpus, int64_t wanted) {
  const int64_t documents = corpus.documents();
  if (documents < kManyDocuments) return std::nullopt;
  const int64_t most = std::min(wanted + wanted / 2, corpus.tokens() - 1);
  const Permutation order(static_cast<uint64_t>(documents), derive_seed(0, "text/held-out"));
  std::vector<bool> chosen(static_cast<size_t>(documents));
  int64_t held = 0;
  for (int64_t i = 0; i < documents && held < wanted; ++i) {
    const auto document = static_cast<int64_t>(order(static_cast<uint64_t>(i)));
    const int64_t size = corpus.document_begin(document + 1) - corpus.document_begin(document);
    if (held + size > most) continue;
    chosen[static_cast<size_t>(document)] = true;
    held += size;
  }
  if (held < wanted) return std::nullopt;
  TextSplit split;
  for (int64_t i = 0; i < documents; ++i)
    (chosen[static_cast<size_t>(i)] ? split.held_out : split.train)
        .add(corpus.document_begin(i), corpus.document_begin(i + 1));
  return split;
}

TextSplit split_tail(const Corpus& corpus, int64_t wanted) {
  const int64_t cut = corpus.tokens() - wanted;
  TextSplit split;
  split.train.add(0, cut);
  split.held_out.add(cut, corpus.tokens());
  return split;
}

}  // namespace

void TextPart::add(int64_t begin, int64_t end) {
  if (!begins_.empty() && begins_.back() + tokens() - starts_[starts_.size() - 2] == begin) {
    starts_.back() += end - begin;
    return;
  }
  begins_.push_back(begin);
  starts_.push_back(tokens() + end - begin);
}

TextPart::Place TextPart::place(int64_t at) const {
  const auto run = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), at) -
                                       starts_.begin() - 1);
  const int64_t offset = begins_[run] - starts_[run];
  return {.token = at + offset, .end = starts_[run + 1] + offset};
}

TextSplit split_text(const Corpus& corpus, double held_out) {
  TEMPERA_CHECK(held_out >= 0 && held_out < 1, "a held-out share of ", held_out,
                "; expected 0 to below 1, such as 0.05");
  const int64_t total = corpus.tokens();
  if (held_out == 0) {
    TextSplit split;
    split.train.add(0, total);
    return split;
  }
  TEMPERA_CHECK(total > kFewestHeldOut, "the data '", corpus.name(), "' is too small: ", total,
                " tokens cannot be split into some to train on and some held out; give more text");
  const auto share = static_cast<int64_t>(std::ceil(held_out * static_cast<double>(total)));
  const int64_t wanted = std::clamp(share, kFewestHeldOut, total - 1);
  if (auto split = split_by_documents(corpus, wanted)) return *std::move(split);
  return split_tail(corpus, wanted);
}

TextDataset::TextDataset(std::shared_ptr<const Corpus> corpus, const TextOptions& options)
    : corpus_(std::move(corpus)),
      length_(options.length),
      order_seed_(derive_seed(options.seed, "text/order")),
      split_(split_text(*corpus_, options.held_out)) {
  TEMPERA_CHECK(length_ >= 1, "rows of ", length_, " tokens; expected at least 1");
  TEMPERA_CHECK(train_tokens() >= length_, "the data '", corpus_->name(), "' is too small: it has ",
                train_tokens(), " tokens to train on (", held_out_tokens(),
                " are held out), and a context of ", length_,
                " needs one row of that; give more text or a shorter context");
  if (options.held_out == 0) return;
  const int64_t length = std::min(length_, held_out_tokens());
  held_out_sets_ = {
      {.label = "held-out", .size = length, .rows = held_out_tokens() / length, .length = length}};
}

Batch TextDataset::train(const BatchRequest& request) const {
  check_request(request);
  const auto rows = static_cast<uint64_t>(train_rows());
  std::vector<int64_t> windows;
  for (int64_t row = 0; row < request.rows; ++row) {
    const uint64_t sample = request.step * static_cast<uint64_t>(request.batch_rows) +
                            static_cast<uint64_t>(request.first_row + row);
    const Permutation order(rows, mix64(order_seed_ + sample / rows));
    windows.push_back(static_cast<int64_t>(order(sample % rows)));
  }
  return pack(split_.train, length_, windows);
}

Batch TextDataset::held_out(size_t set, int64_t first_row, int64_t rows) const {
  check_held_out(*this, set, first_row, rows);
  std::vector<int64_t> windows;
  for (int64_t row = 0; row < rows; ++row) windows.push_back(first_row + row);
  return pack(split_.held_out, held_out_sets_[set].length, windows);
}

Batch TextDataset::pack(const TextPart& part, int64_t length,
                        std::span<const int64_t> windows) const {
  Batch batch;
  batch.rows = static_cast<int64_t>(windows.size());
  batch.length = length;
  batch.tokens.resize(windows.size() * static_cast<size_t>(length));
  batch.targets.resize(batch.tokens.size());
  std::vector<std::vector<int64_t>> lengths(windows.size());
  size_t most = 0;
  for (size_t row = 0; row < windows.size(); ++row) {
    const size_t at = row * static_cast<size_t>(length);
    pack_row(part, windows[row], std::span(batch.tokens).subspan(at, static_cast<size_t>(length)),
             batch.targets.data() + at, lengths[row]);
    most = std::max(most, lengths[row].size());
  }
  if (most > 1) {
    batch.documents = static_cast<int64_t>(most);
    batch.document_lengths.resize(windows.size() * most);
    for (size_t row = 0; row < windows.size(); ++row)
      std::copy(lengths[row].begin(), lengths[row].end(),
                batch.document_lengths.begin() + static_cast<std::ptrdiff_t>(row * most));
  }
  return batch;
}

void TextDataset::pack_row(const TextPart& part, int64_t window, std::span<int64_t> tokens,
                           int64_t* targets, std::vector<int64_t>& lengths) const {
  const auto length = static_cast<int64_t>(tokens.size());
  int64_t filled = 0;
  while (filled < length) {
    const TextPart::Place place = part.place(window * length + filled);
    const int64_t end = std::min(place.end, corpus_->document_end(place.token));
    const int64_t count = std::min(end - place.token, length - filled);
    const auto here = tokens.subspan(static_cast<size_t>(filled), static_cast<size_t>(count));
    corpus_->read(place.token, here);
    std::copy(here.begin() + 1, here.end(), targets + filled);
    int64_t& last = targets[filled + count - 1];
    last = kIgnored;
    if (place.token + count < end) corpus_->read(place.token + count, {&last, 1});
    lengths.push_back(count);
    filled += count;
  }
}

}  // namespace tempera::data
