#include "tempera/text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "tempera/text/byte_level.h"
#include "tempera/text/scanner.h"
#include "tempera/text/unicode.h"

namespace tempera::text {

void Pieces::reset(std::string_view whole, bool starts) {
  text = whole;
  at_start = starts;
  ranges.clear();
  if (!whole.empty()) ranges.push_back({0, whole.size()});
}

void Pieces::take_spare() {
  buffer.swap(spare);
  ranges.swap(spare_ranges);
  text = buffer;
  spare.clear();
  spare_ranges.clear();
}

namespace {

struct Part {
  Range range;
  bool match = false;
};

// Joins the parts of a piece; a part of the wrong kind starts a new range.
void join(std::vector<Part>& parts, SplitBehavior behavior, std::vector<Range>& ranges) {
  const size_t first = ranges.size();
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::reverse(parts.begin(), parts.end());
  bool previous = false;
  for (const Part& part : parts) {
    const bool joins =
        ranges.size() > first &&
        (behavior == SplitBehavior::kContiguous ? part.match == previous : part.match && !previous);
    if (!joins) {
      ranges.push_back(part.range);
    } else if (backwards) {
      ranges.back().begin = part.range.begin;
    } else {
      ranges.back().end = part.range.end;
    }
    previous = part.match;
  }
  if (backwards) std::reverse(ranges.begin() + static_cast<std::ptrdiff_t>(first), ranges.end());
}

void put(Range range, std::vector<Range>& ranges) {
  if (range.begin < range.end) ranges.push_back(range);
}

// Cuts every piece at what find(piece, matches) finds in it.
template <class Find>
void cut(Pieces& pieces, SplitBehavior behavior, bool invert, Find&& find) {
  auto& result = pieces.spare_ranges;
  result.clear();
  std::vector<Part> parts;
  const bool simple = behavior == SplitBehavior::kIsolated || behavior == SplitBehavior::kRemoved;
  for (const Range& range : pieces.ranges) {
    find(pieces.piece(range), pieces.matches);
    size_t at = range.begin;
    parts.clear();
    const auto add = [&](Range part, bool match) {
      if (!simple) {
        parts.push_back({part, match});
      } else if (behavior == SplitBehavior::kIsolated || !match) {
        put(part, result);
      }
    };
    for (const Range& match : pieces.matches) {
      const Range found{range.begin + match.begin, range.begin + match.end};
      if (at < found.begin) add({at, found.begin}, invert);
      add(found, !invert);
      at = found.end;
    }
    if (at < range.end) add({at, range.end}, invert);
    if (!simple) join(parts, behavior, result);
  }
  std::erase_if(result, [](const Range& range) { return range.begin == range.end; });
  pieces.ranges.swap(result);
}

// Every character with the property is a match by itself.
template <class Property>
auto characters_with(Property property) {
  return [property](std::string_view piece, std::vector<Range>& matches) {
    matches.clear();
    for (size_t at = 0; at < piece.size();) {
      const Character c = character_at(piece, at);
      if (property(c.code)) matches.push_back({at, at + c.size});
      at += c.size;
    }
  };
}

class Split final : public PreTokenizer {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(Pieces& pieces) const override {
    cut(pieces, behavior_, invert_, [this](std::string_view piece, std::vector<Range>& matches) {
      pattern_.find_all(piece, matches);
    });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class Digits final : public PreTokenizer {
 public:
  explicit Digits(bool individual)
      : behavior_(individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous) {}
  void apply(Pieces& pieces) const override {
    cut(pieces, behavior_, false, characters_with(is_number));
  }

 private:
  SplitBehavior behavior_;
};

class Punctuation final : public PreTokenizer {
 public:
  explicit Punctuation(SplitBehavior behavior) : behavior_(behavior) {}
  void apply(Pieces& pieces) const override {
    cut(pieces, behavior_, false, characters_with(is_punctuation));
  }

 private:
  SplitBehavior behavior_;
};

class WhiteSpace final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    cut(pieces, SplitBehavior::kRemoved, false, characters_with(is_space));
  }
};

class Words final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override { cut(pieces, SplitBehavior::kRemoved, true, find); }

 private:
  enum class Kind { kSpace, kWord, kOther };
  static Kind kind(char32_t code) {
    return is_word(code) ? Kind::kWord : is_space(code) ? Kind::kSpace : Kind::kOther;
  }
  static void find(std::string_view piece, std::vector<Range>& matches) {
    matches.clear();
    Kind before = Kind::kSpace;
    for (size_t at = 0; at < piece.size();) {
      const Character c = character_at(piece, at);
      const Kind now = kind(c.code);
      if (now != Kind::kSpace) {
        if (now == before)
          matches.back().end += c.size;
        else
          matches.push_back({at, at + c.size});
      }
      before = now;
      at += c.size;
    }
  }
};

class ByteLevel final : public PreTokenizer {
 public:
  explicit ByteLevel(ByteLevelOptions options)
      : options_(options), pattern_(Pattern::regex(kGpt2Pattern)) {}

  void apply(Pieces& pieces) const override {
    if (options_.add_prefix_space) add_spaces(pieces);
    if (options_.use_regex) {
      cut(pieces, SplitBehavior::kIsolated, false,
          [this](std::string_view piece, std::vector<Range>& matches) {
            pattern_.find_all(piece, matches);
          });
    }
    if (options_.map_bytes) map_bytes(pieces);
  }

 private:
  static void add_spaces(Pieces& pieces) {
    pieces.spare.clear();
    pieces.spare_ranges.clear();
    for (const Range& range : pieces.ranges) {
      const size_t begin = pieces.spare.size();
      const std::string_view piece = pieces.piece(range);
      if (!piece.starts_with(' ')) pieces.spare += ' ';
      pieces.spare += piece;
      pieces.spare_ranges.push_back({begin, pieces.spare.size()});
    }
    pieces.take_spare();
  }
  static void map_bytes(Pieces& pieces) {
    pieces.spare.clear();
    pieces.spare_ranges.clear();
    for (const Range& range : pieces.ranges) {
      const size_t begin = pieces.spare.size();
      append_byte_level(pieces.piece(range), pieces.spare);
      pieces.spare_ranges.push_back({begin, pieces.spare.size()});
    }
    pieces.take_spare();
  }

  ByteLevelOptions options_;
  Pattern pattern_;
};

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrefixSpace prefix, bool split)
      : replacement_(std::move(replacement)),
        pattern_(Pattern::literal(replacement_)),
        prefix_(prefix),
        split_(split) {}

  void apply(Pieces& pieces) const override {
    pieces.spare.clear();
    pieces.spare_ranges.clear();
    for (const Range& range : pieces.ranges) {
      const size_t begin = pieces.spare.size();
      const std::string_view piece = pieces.piece(range);
      const bool starts = piece.starts_with(' ') || piece.starts_with(replacement_);
      const bool wanted = prefix_ == PrefixSpace::kAlways ||
                          (prefix_ == PrefixSpace::kFirst && pieces.at_start && range.begin == 0);
      if (wanted && !starts) pieces.spare += replacement_;
      for (const char c : piece) {
        if (c == ' ')
          pieces.spare += replacement_;
        else
          pieces.spare += c;
      }
      pieces.spare_ranges.push_back({begin, pieces.spare.size()});
    }
    pieces.take_spare();
    if (!split_) return;
    cut(pieces, SplitBehavior::kMergedWithNext, false,
        [this](std::string_view piece, std::vector<Range>& matches) {
          pattern_.find_all(piece, matches);
        });
  }

 private:
  std::string replacement_;
  Pattern pattern_;
  PrefixSpace prefix_;
  bool split_;
};

}  // namespace

std::unique_ptr<PreTokenizer> split_pre_tokenizer(Pattern pattern, SplitBehavior behavior,
                                                  bool invert) {
  return std::make_unique<Split>(std::move(pattern), behavior, invert);
}
std::unique_ptr<PreTokenizer> byte_level_pre_tokenizer(ByteLevelOptions options) {
  return std::make_unique<ByteLevel>(options);
}
std::unique_ptr<PreTokenizer> digits_pre_tokenizer(bool individual) {
  return std::make_unique<Digits>(individual);
}
std::unique_ptr<PreTokenizer> punctuation_pre_tokenizer(SplitBehavior behavior) {
  return std::make_unique<Punctuation>(behavior);
}
std::unique_ptr<PreTokenizer> metaspace_pre_tokenizer(std::string replacement, PrefixSpace prefix,
                                                      bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), prefix, split);
}
std::unique_ptr<PreTokenizer> words_pre_tokenizer() { return std::make_unique<Words>(); }
std::unique_ptr<PreTokenizer> white_space_pre_tokenizer() { return std::make_unique<WhiteSpace>(); }

}  // namespace tempera::text
