#include "tempera/text/unigram.h"

#include <algorithm>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/text/unicode.h"

namespace tempera::text {

Unigram::Unigram(const Vocabulary& vocabulary, std::vector<double> scores, UnigramOptions options,
                 const std::function<bool(int32_t)>& never)
    : scores_(std::move(scores)), options_(options), bytes_(byte_ids(vocabulary)) {
  for (int32_t id = 0; id < vocabulary.size(); ++id)
    if (static_cast<size_t>(id) < scores_.size() && !never(id)) trie_.add(vocabulary.piece(id), id);
}

void Unigram::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  cached(piece, scratch, ids, [&](std::string_view word, std::vector<int32_t>& result) {
    encode_word(word, scratch, result);
  });
}

void Unigram::forward(std::string_view word, std::vector<Scratch::Node>& nodes) const {
  nodes.assign(word.size() + 1, {});
  for (size_t at = 0; at < word.size();) {
    const double before = nodes[at].score;
    const size_t one = character_at(word, at).size;
    const auto offer = [&](size_t size, double score, int32_t id) {
      double sum = before + score;
      if (options_.single_precision) sum = static_cast<double>(static_cast<float>(sum));
      Scratch::Node& node = nodes[at + size];
      if (node.begin < 0 || sum > node.score) node = {sum, static_cast<int64_t>(at), id};
    };
    bool single = false;
    trie_.prefixes(word.substr(at), [&](size_t size, int32_t id) {
      offer(size, scores_[static_cast<size_t>(id)], id);
      single |= size == one;
    });
    if (!single) {
      TEMPERA_CHECK(options_.unknown, "'", word.substr(at, one),
                    "' is in no piece, and this tokenizer has no unknown token");
      offer(one, options_.unknown_score, *options_.unknown);
    }
    at += one;
  }
}

void Unigram::encode_word(std::string_view word, Scratch& scratch,
                          std::vector<int32_t>& ids) const {
  auto& nodes = scratch.nodes;
  forward(word, nodes);
  const size_t before = ids.size();
  // From the end; unknown neighbours are one.
  for (size_t end = word.size(); end > 0;) {
    auto begin = static_cast<size_t>(nodes[end].begin);
    const int32_t id = nodes[end].id;
    if (id != options_.unknown) {
      ids.push_back(id);
      end = begin;
      continue;
    }
    while (begin > 0 && nodes[begin].id == id) begin = static_cast<size_t>(nodes[begin].begin);
    const size_t first = ids.size();
    if (options_.byte_fallback && append_bytes(word.substr(begin, end - begin), bytes_, ids)) {
      std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
    } else {
      ids.push_back(id);
    }
    end = begin;
  }
  std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end());
}

}  // namespace tempera::text
