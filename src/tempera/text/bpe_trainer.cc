#include "tempera/text/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <queue>

#include "tempera/base/error.h"
#include "tempera/text/byte_level.h"
#include "tempera/text/scanner.h"
#include "tempera/text/tokenizer_json_writer.h"
#include "tempera/text/unicode.h"

namespace tempera::text {
namespace {

using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& pair) const {
    const auto both = static_cast<uint64_t>(static_cast<uint32_t>(pair.first)) << 32 |
                      static_cast<uint32_t>(pair.second);
    const uint64_t mixed = (both ^ (both >> 29)) * 0x9E3779B97F4A7C15ULL;
    return mixed ^ (mixed >> 32);
  }
};

// A pair that may be joined next, with the words that held it when it was queued. The most frequent
// comes first, of equal ones that of the lower ids.
struct Candidate {
  int64_t count = 0;
  Pair pair;
  std::vector<uint32_t> words;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class Merger {
 public:
  explicit Merger(std::vector<std::string>& pieces) : pieces_(pieces) {
    for (size_t i = 0; i < pieces.size(); ++i) ids_.emplace(pieces[i], static_cast<int32_t>(i));
  }

  int32_t id(const std::string& piece) const { return ids_.at(piece); }
  void add_word(std::vector<int32_t> symbols, int64_t count) {
    const auto word = static_cast<uint32_t>(symbols_.size());
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      change({symbols[i], symbols[i + 1]}, count, word);
    symbols_.push_back(std::move(symbols));
    counts_.push_back(count);
  }

  // The next pair, which is joined everywhere; false if none is frequent enough.
  bool join_next(int64_t min_frequency, std::vector<Pair>& merges) {
    queue_changes();
    while (!queue_.empty()) {
      Candidate top = queue_.top();
      queue_.pop();
      const int64_t now = pair_counts_[top.pair];
      if (top.count != now) {  // it went down since
        top.count = now;
        queue_.push(std::move(top));
        continue;
      }
      if (top.count < std::max<int64_t>(min_frequency, 1)) return false;
      merges.push_back(top.pair);
      const int32_t joined = join_pieces(top.pair);
      for (const uint32_t word : top.words) join_in_word(word, top.pair, joined);
      return true;
    }
    return false;
  }

 private:
  // Two ways to the same text give the same id.
  int32_t join_pieces(const Pair& pair) {
    std::string text =
        pieces_[static_cast<size_t>(pair.first)] + pieces_[static_cast<size_t>(pair.second)];
    const auto [place, added] = ids_.emplace(text, static_cast<int32_t>(pieces_.size()));
    if (added) pieces_.push_back(std::move(text));
    return place->second;
  }

  void change(const Pair& pair, int64_t by, uint32_t word) {
    pair_counts_[pair] += by;
    if (by < 0) return;
    auto& words = changed_[pair];
    // All changes of a word come one after the other.
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  void join_in_word(uint32_t word, const Pair& pair, int32_t joined) {
    auto& symbols = symbols_[word];
    const int64_t count = counts_[word];
    size_t kept = 0;
    for (size_t i = 0; i < symbols.size(); ++i, ++kept) {
      const bool here = i + 1 < symbols.size() && Pair(symbols[i], symbols[i + 1]) == pair;
      symbols[kept] = here ? joined : symbols[i];
      if (!here) continue;
      if (kept > 0) {
        change({symbols[kept - 1], pair.first}, -count, word);
        change({symbols[kept - 1], joined}, count, word);
      }
      ++i;
      if (i + 1 < symbols.size()) {
        change({pair.second, symbols[i + 1]}, -count, word);
        change({joined, symbols[i + 1]}, count, word);
      }
    }
    symbols.resize(kept);
  }

  void queue_changes() {
    for (auto& [pair, words] : changed_)
      if (const int64_t count = pair_counts_[pair]; count > 0)
        queue_.push({count, pair, std::move(words)});
    changed_.clear();
  }

  std::vector<std::string>& pieces_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<std::vector<int32_t>> symbols_;  // of each word
  std::vector<int64_t> counts_;
  std::unordered_map<Pair, int64_t, PairHash> pair_counts_;
  std::unordered_map<Pair, std::vector<uint32_t>, PairHash> changed_;
  std::priority_queue<Candidate> queue_;
};

// The characters that stand for the bytes, by code point, as the package orders them.
std::vector<std::string> byte_pieces() {
  std::vector<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    append_byte_level({&c, 1}, pieces.emplace_back());
  }
  std::sort(pieces.begin(), pieces.end());
  return pieces;
}

}  // namespace

void BpeTrainer::add(std::string_view document) {
  std::string repaired;
  if (!is_valid_utf8(document)) document = repaired = valid_utf8(document);
  for (size_t at = 0; at < document.size();) {
    const size_t end = scan_gpt2(document, at);
    const auto word = document.substr(at, end - at);
    const auto found = words_.find(word);
    if (found != words_.end())
      ++found->second;
    else
      words_.emplace(word, 1);
    at = end;
  }
}

TrainedBpe BpeTrainer::train(const BpeTrainerOptions& options,
                             FunctionRef<void(int64_t)> report) const {
  const auto least = static_cast<int64_t>(options.special_tokens.size()) + 256;
  TEMPERA_CHECK(options.vocabulary >= least && options.vocabulary <= (1 << 22), "a vocabulary of ",
                options.vocabulary, " pieces; expected ", least,
                " (the bytes and the special tokens) to ", 1 << 22);
  TEMPERA_CHECK(!words_.empty(), "no text to learn a vocabulary from");
  TrainedBpe trained;
  for (const auto& token : options.special_tokens) {
    TEMPERA_CHECK(!token.empty() && is_valid_utf8(token), "a special token is empty or no UTF-8");
    TEMPERA_CHECK(
        std::find(trained.pieces.begin(), trained.pieces.end(), token) == trained.pieces.end(),
        "the special token '", token, "' twice");
    trained.pieces.push_back(token);
  }
  trained.special_tokens = trained.pieces.size();
  for (auto& piece : byte_pieces())
    if (std::find(trained.pieces.begin(), trained.pieces.end(), piece) == trained.pieces.end())
      trained.pieces.push_back(std::move(piece));

  Merger merger(trained.pieces);
  std::array<int32_t, 256> byte_ids{};
  for (size_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    std::string piece;
    append_byte_level({&c, 1}, piece);
    byte_ids[byte] = merger.id(piece);
  }
  for (const auto& [word, count] : words_) {
    std::vector<int32_t> symbols;
    for (const char c : word) symbols.push_back(byte_ids[static_cast<unsigned char>(c)]);
    merger.add_word(std::move(symbols), count);
  }
  while (static_cast<int64_t>(trained.pieces.size()) < options.vocabulary &&
         merger.join_next(options.min_frequency, trained.merges))
    if (trained.merges.size() % 64 == 0) report(static_cast<int64_t>(trained.pieces.size()));
  return trained;
}

std::string TrainedBpe::tokenizer_json() const {
  BpeJson parts{.pieces = pieces,
                .pre_tokenizer = byte_level_json(true),
                .decoder = byte_level_json(true, true)};
  for (size_t i = 0; i < special_tokens; ++i)
    parts.added.push_back({.content = pieces[i], .id = static_cast<int32_t>(i), .special = true});
  for (const auto& [left, right] : merges)
    parts.merges.push_back(
        concat(pieces[static_cast<size_t>(left)], " ", pieces[static_cast<size_t>(right)]));
  return tokenizer_json_text(parts);
}

}  // namespace tempera::text
