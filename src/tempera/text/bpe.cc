#include "tempera/text/bpe.h"

#include <algorithm>
#include <utility>

#include "tempera/base/error.h"
#include "tempera/text/byte_level.h"
#include "tempera/text/unicode.h"

namespace tempera::text {
namespace {

constexpr char32_t kPlane = 0x10000;
constexpr size_t kShortWord = 24;  // symbols; up to here a scan is quicker than a heap

uint64_t pair_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t place_of(uint64_t pair) { return static_cast<size_t>((pair * 0x9E3779B97F4A7C15U) >> 24); }

bool first_is_least(const Scratch::Candidate& a, const Scratch::Candidate& b) {
  return a.order > b.order;
}

}  // namespace

BpeMerge Bpe::parse_merge(const Vocabulary& vocabulary, std::string_view text, size_t rank,
                          const std::string& prefix) {
  size_t blank = text.find(' ');
  if (blank != text.rfind(' ')) {
    while (blank != std::string_view::npos &&
           !(vocabulary.find(text.substr(0, blank)) && vocabulary.find(text.substr(blank + 1))))
      blank = text.find(' ', blank + 1);
  }
  TEMPERA_CHECK(blank != std::string_view::npos, "merge ", rank + 1, " is '", text,
                "'; two pieces with a blank between them are expected");
  return merge_of(vocabulary, text.substr(0, blank), text.substr(blank + 1), rank, prefix);
}

BpeMerge Bpe::merge_of(const Vocabulary& vocabulary, std::string_view left, std::string_view right,
                       size_t rank, const std::string& prefix) {
  std::string joined(left);
  joined += right.starts_with(prefix) ? right.substr(prefix.size()) : right;
  const std::string where = concat("merge ", rank + 1);
  return {.left = vocabulary.at(left, where),
          .right = vocabulary.at(right, where),
          .result = vocabulary.at(joined, where),
          .rank = static_cast<uint32_t>(rank)};
}

Bpe::Bpe(const Vocabulary& vocabulary, std::vector<BpeMerge> merges, BpeOptions options,
         const std::function<bool(int32_t)>& never)
    : options_(std::move(options)) {
  std::erase_if(merges, [&](const BpeMerge& merge) { return never(merge.result); });
  fill_slots(merges);
  bytes_ = byte_ids(vocabulary);
  add_letters(vocabulary, never);
  find_boundary(vocabulary, merges);
}

void Bpe::fill_slots(const std::vector<BpeMerge>& merges) {
  size_t size = 64;
  while (size < 2 * merges.size()) size *= 2;
  slots_.resize(size);
  mask_ = size - 1;
  for (const BpeMerge& merge : merges) {
    const uint64_t pair = pair_of(merge.left, merge.right);
    size_t at = place_of(pair) & mask_;
    while (slots_[at].pair != ~uint64_t{0} && slots_[at].pair != pair) at = (at + 1) & mask_;
    slots_[at] = {pair, merge.rank, merge.result};
  }
}

void Bpe::add_letters(const Vocabulary& vocabulary, const std::function<bool(int32_t)>& never) {
  for (auto& table : letters_) table.assign(options_.bytes ? 256 : kPlane, -1);
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string& piece = vocabulary.piece(id);
    if (piece.empty() || never(id)) continue;
    if (options_.bytes) {
      const auto raw = byte_level_bytes(piece);
      if (!raw) continue;
      if (raw->size() == 1) letters_[0][static_cast<unsigned char>(raw->front())] = id;
      if (options_.whole_words) words_[*raw] = id;
      continue;
    }
    if (options_.whole_words) words_[piece] = id;
    for (size_t form = 0; form < 4; ++form) {
      std::string_view middle = piece;
      if (form & 1U) {
        if (options_.prefix.empty() || !middle.starts_with(options_.prefix)) continue;
        middle.remove_prefix(options_.prefix.size());
      }
      if (form & 2U) {
        if (options_.suffix.empty() || !middle.ends_with(options_.suffix)) continue;
        middle.remove_suffix(options_.suffix.size());
      }
      if (middle.empty()) continue;
      const Character c = character_at(middle, 0);
      if (c.size != middle.size()) continue;
      if (c.code < kPlane)
        letters_[form][c.code] = id;
      else
        rare_letters_[form][c.code] = id;
    }
  }
}

// Where no merge joins something else with a space behind it, the words of a text can be encoded
// one by one, and are found in the cache.
void Bpe::find_boundary(const Vocabulary& vocabulary, const std::vector<BpeMerge>& merges) {
  if (options_.bytes || options_.whole_words || !options_.prefix.empty() ||
      !options_.suffix.empty() || letter(0x2581, 0) < 0)
    return;
  cut_at_spaces_ = std::all_of(merges.begin(), merges.end(), [&](const BpeMerge& merge) {
    const auto known = [&](int32_t id) { return id < vocabulary.size(); };
    return !known(merge.right) || !vocabulary.piece(merge.right).starts_with(kBlankMark) ||
           (known(merge.left) && vocabulary.piece(merge.left).ends_with(kBlankMark));
  });
}

const Bpe::Slot* Bpe::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_of(left, right);
  for (size_t at = place_of(pair) & mask_;; at = (at + 1) & mask_) {
    if (slots_[at].pair == pair) return &slots_[at];
    if (slots_[at].pair == ~uint64_t{0}) return nullptr;
  }
}

int32_t Bpe::letter(char32_t code, size_t form) const {
  if (code < kPlane) return letters_[form][code];
  const auto found = rare_letters_[form].find(code);
  return found == rare_letters_[form].end() ? -1 : found->second;
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& ids) const {
  const auto word = [&](std::string_view text) {
    cached(text, scratch, ids, [&](std::string_view missing, std::vector<int32_t>& result) {
      encode_word(missing, scratch, result);
    });
  };
  if (!cut_at_spaces_) {
    word(piece);
    return;
  }
  size_t begin = 0;
  for (size_t at = piece.find(kBlankMark, 1); at != std::string_view::npos;
       at = piece.find(kBlankMark, at + 1)) {
    if (piece.substr(0, at).ends_with(kBlankMark)) continue;
    word(piece.substr(begin, at - begin));
    begin = at;
  }
  word(piece.substr(begin));
}

void Bpe::start_bytes(std::string_view word, std::vector<int32_t>& symbols) const {
  bool was_unknown = false;
  for (const char c : word) {
    const int32_t id = letters_[0][static_cast<unsigned char>(c)];
    if (id >= 0)
      symbols.push_back(id);
    else if (options_.unknown && !(was_unknown && options_.fuse_unknown))
      symbols.push_back(*options_.unknown);
    was_unknown = id < 0;
  }
}

void Bpe::start(std::string_view word, std::vector<int32_t>& symbols) const {
  bool was_unknown = false;
  for (size_t at = 0; at < word.size();) {
    const Character c = character_at(word, at);
    const size_t end = at + c.size;
    const size_t form = (at > 0 && !options_.prefix.empty() ? 1U : 0U) |
                        (end == word.size() && !options_.suffix.empty() ? 2U : 0U);
    const int32_t id = letter(c.code, form);
    if (id >= 0) {
      symbols.push_back(id);
      was_unknown = false;
    } else {
      std::string spelled;
      if (form & 1U) spelled += options_.prefix;
      spelled += word.substr(at, c.size);
      if (form & 2U) spelled += options_.suffix;
      const bool spelled_out = options_.byte_fallback && append_bytes(spelled, bytes_, symbols);
      if (!spelled_out && options_.unknown) {
        if (!(was_unknown && options_.fuse_unknown)) symbols.push_back(*options_.unknown);
        was_unknown = true;
      }
    }
    at = end;
  }
}

void Bpe::encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (options_.whole_words) {
    if (const auto found = words_.find(word); found != words_.end()) {
      ids.push_back(found->second);
      return;
    }
  }
  auto& symbols = scratch.ids;
  symbols.clear();
  if (options_.bytes)
    start_bytes(word, symbols);
  else
    start(word, symbols);
  if (symbols.size() <= kShortWord)
    join_short(scratch);
  else
    join_long(scratch);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

void Bpe::join_short(Scratch& scratch) const {
  auto& ids = scratch.ids;
  auto& ranks = scratch.ranks;  // of a symbol and the one behind it
  ranks.clear();
  for (size_t i = 0; i + 1 < ids.size(); ++i) ranks.push_back(rank(ids[i], ids[i + 1]));
  while (!ranks.empty()) {
    const auto least = std::min_element(ranks.begin(), ranks.end());
    if (*least == kNoRank) return;
    const auto i = static_cast<size_t>(least - ranks.begin());
    ids[i] = find(ids[i], ids[i + 1])->result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(least);
    if (i > 0) ranks[i - 1] = rank(ids[i - 1], ids[i]);
    if (i < ranks.size()) ranks[i] = rank(ids[i], ids[i + 1]);
  }
}

void Bpe::join_long(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto count = static_cast<int32_t>(scratch.ids.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i)
    symbols.push_back({scratch.ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  const auto symbol = [&](int32_t i) -> Scratch::Symbol& {
    return symbols[static_cast<size_t>(i)];
  };
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbol(left).next < 0) return;
    const Slot* slot = find(symbol(left).id, symbol(symbol(left).next).id);
    if (slot == nullptr) return;
    heap.push_back(
        {static_cast<uint64_t>(slot->rank) << 32 | static_cast<uint32_t>(left), slot->result});
    std::push_heap(heap.begin(), heap.end(), first_is_least);
  };
  for (int32_t i = 0; i < count; ++i) consider(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), first_is_least);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    const auto left = static_cast<int32_t>(best.order & 0xFFFFFFFFU);
    const int32_t right = symbol(left).next;
    if (symbol(left).id < 0 || right < 0) continue;
    // One of the two may have been joined with another since.
    const Slot* slot = find(symbol(left).id, symbol(right).id);
    if (slot == nullptr || slot->result != best.result || slot->rank != best.order >> 32) continue;
    symbol(left).id = best.result;
    symbol(left).next = symbol(right).next;
    if (symbol(right).next >= 0) symbol(symbol(right).next).previous = left;
    symbol(right) = {-1, -1, -1};
    consider(symbol(left).previous);
    consider(left);
  }
  scratch.ids.clear();
  for (const auto& kept : symbols)
    if (kept.id >= 0) scratch.ids.push_back(kept.id);
}

}  // namespace tempera::text
