#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/text/pattern.h"

namespace tempera::text {

// A text in pieces, each for the model by itself. Reused from text to text for its memory.
struct Pieces {
  std::string_view text;  // what the caller gave, or the buffer
  std::vector<Range> ranges;
  bool at_start = true;  // the text starts the whole text, and does not follow a special token

  void reset(std::string_view whole, bool starts);
  std::string_view piece(const Range& range) const {
    return text.substr(range.begin, range.end - range.begin);
  }
  // Takes the spare text and ranges as the new ones.
  void take_spare();

  std::string buffer, spare;
  std::vector<Range> spare_ranges;
  std::vector<Range> matches;
};

// Cuts pieces into smaller ones; none is empty.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

using PreTokenizers = std::vector<std::unique_ptr<const PreTokenizer>>;

// What becomes of the matches of a pattern.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

enum class PrefixSpace { kNever, kFirst, kAlways };

struct ByteLevelOptions {
  bool add_prefix_space = false;
  bool use_regex = true;
  // Off where the model takes bytes as they are, which saves two copies of the text.
  bool map_bytes = true;
};

std::unique_ptr<PreTokenizer> split_pre_tokenizer(Pattern pattern, SplitBehavior behavior,
                                                  bool invert);
std::unique_ptr<PreTokenizer> byte_level_pre_tokenizer(ByteLevelOptions options);
std::unique_ptr<PreTokenizer> digits_pre_tokenizer(bool individual);
std::unique_ptr<PreTokenizer> punctuation_pre_tokenizer(SplitBehavior behavior);
std::unique_ptr<PreTokenizer> metaspace_pre_tokenizer(std::string replacement, PrefixSpace prefix,
                                                      bool split);
std::unique_ptr<PreTokenizer> words_pre_tokenizer();        // \w+|[^\w\s]+
std::unique_ptr<PreTokenizer> white_space_pre_tokenizer();  // at white space, which is dropped

}  // namespace tempera::text
