#include "tempera/data/text_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/data/permutation.h"
#include "tempera/data/random.h"

namespace tempera::data {
namespace {

// Fewer documents than these are too coarse to hold some out.
constexpr int64_t kManyDocuments = 100;

}  // namespace

void TextDataset::Part::add(int64_t begin, int64_t end) {
  if (!begins_.empty() && begins_.back() + tokens() - starts_[starts_.size() - 2] == begin) {
    starts_.back() += end - begin;
    return;
  }
  begins_.push_back(begin);
  starts_.push_back(tokens() + end - begin);
}

TextDataset::Part::Place TextDataset::Part::place(int64_t at) const {
  const auto run = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), at) -
                                       starts_.begin() - 1);
  const int64_t offset = begins_[run] - starts_[run];
  return {.token = at + offset, .end = starts_[run + 1] + offset};
}

TextDataset::TextDataset(std::shared_ptr<const Corpus> corpus, const TextOptions& options)
    : corpus_(std::move(corpus)),
      length_(options.length),
      order_seed_(derive_seed(options.seed, "text/order")) {
  TEMPERA_CHECK(length_ >= 1, "rows of ", length_, " tokens; expected at least 1");
  TEMPERA_CHECK(options.held_out >= 0 && options.held_out < 1, "a held-out share of ",
                options.held_out, "; expected 0 to below 1, such as 0.05");
  const int64_t total = corpus_->tokens();
  const int64_t needed = options.held_out > 0 ? 2 * length_ : length_;
  TEMPERA_CHECK(total >= needed, "the data '", corpus_->name(), "' is too small: it has ", total,
                " tokens, a context of ", length_, " needs at least ", needed,
                options.held_out > 0 ? " (one row to train on and one held out)" : "",
                "; give more text or a shorter context");
  if (options.held_out == 0) {
    train_.add(0, total);
    return;
  }
  const auto share = static_cast<int64_t>(std::ceil(options.held_out * static_cast<double>(total)));
  const int64_t wanted = std::clamp(share, length_, total - length_);
  if (!split_by_documents(wanted)) split_tail(wanted);
  held_out_sets_ = {{.label = "held-out",
                     .size = length_,
                     .rows = held_out_.tokens() / length_,
                     .length = length_}};
}

// Holds out whole documents, chosen by a fixed permutation, until they have the tokens wanted.
// False, with nothing done, where the documents are too few or too long for that.
bool TextDataset::split_by_documents(int64_t wanted) {
  const int64_t documents = corpus_->documents();
  if (documents < kManyDocuments) return false;
  const int64_t most = std::min(wanted + wanted / 2, corpus_->tokens() - length_);
  const Permutation order(static_cast<uint64_t>(documents), derive_seed(0, "text/held-out"));
  std::vector<bool> chosen(static_cast<size_t>(documents));
  int64_t held = 0;
  for (int64_t i = 0; i < documents && held < wanted; ++i) {
    const auto document = static_cast<int64_t>(order(static_cast<uint64_t>(i)));
    const int64_t size = corpus_->document_begin(document + 1) - corpus_->document_begin(document);
    if (held + size > most) continue;
    chosen[static_cast<size_t>(document)] = true;
    held += size;
  }
  if (held < wanted) return false;
  for (int64_t i = 0; i < documents; ++i)
    (chosen[static_cast<size_t>(i)] ? held_out_ : train_)
        .add(corpus_->document_begin(i), corpus_->document_begin(i + 1));
  return true;
}

void TextDataset::split_tail(int64_t wanted) {
  const int64_t cut = corpus_->tokens() - wanted;
  train_.add(0, cut);
  held_out_.add(cut, corpus_->tokens());
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
  return pack(train_, windows);
}

Batch TextDataset::held_out(size_t set, int64_t first_row, int64_t rows) const {
  check_held_out(*this, set, first_row, rows);
  std::vector<int64_t> windows;
  for (int64_t row = 0; row < rows; ++row) windows.push_back(first_row + row);
  return pack(held_out_, windows);
}

Batch TextDataset::pack(const Part& part, std::span<const int64_t> windows) const {
  Batch batch;
  batch.rows = static_cast<int64_t>(windows.size());
  batch.length = length_;
  batch.tokens.resize(windows.size() * static_cast<size_t>(length_));
  batch.targets.resize(batch.tokens.size());
  std::vector<std::vector<int64_t>> lengths(windows.size());
  size_t most = 0;
  for (size_t row = 0; row < windows.size(); ++row) {
    const size_t at = row * static_cast<size_t>(length_);
    pack_row(part, windows[row], batch.tokens.data() + at, batch.targets.data() + at, lengths[row]);
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

void TextDataset::pack_row(const Part& part, int64_t window, int64_t* tokens, int64_t* targets,
                           std::vector<int64_t>& lengths) const {
  int64_t filled = 0;
  while (filled < length_) {
    const Part::Place place = part.place(window * length_ + filled);
    const int64_t end = std::min(place.end, corpus_->document_end(place.token));
    const int64_t count = std::min(end - place.token, length_ - filled);
    corpus_->read(place.token, {tokens + filled, static_cast<size_t>(count)});
    std::copy_n(tokens + filled + 1, count - 1, targets + filled);
    int64_t& last = targets[filled + count - 1];
    last = kIgnored;
    if (place.token + count < end) corpus_->read(place.token + count, {&last, 1});
    lengths.push_back(count);
    filled += count;
  }
}

}  // namespace tempera::data
