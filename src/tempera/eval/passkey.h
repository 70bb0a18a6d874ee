#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tempera/config/options.h"
#include "tempera/eval/grid.h"
#include "tempera/nn/model.h"
#include "tempera/text/tokenizer.h"

namespace tempera::eval {

// Does a model find a number that a long text mentions once? At several lengths of the text and
// depths of the number.
struct PasskeyOptions {
  std::vector<std::string> hay = {};  // text and jsonl files; none: built-in sentences
  std::vector<int64_t> lengths = {512, 1024, 2048};      // tokens, question and answer included
  std::vector<double> depths = {0, 0.25, 0.5, 0.75, 1};  // 0: the begin of the text
  int64_t cases = 4;                                     // for each length and depth
  int64_t digits = 5;
  int64_t seed = 0;

  int64_t all_cases() const { return cases * static_cast<int64_t>(lengths.size() * depths.size()); }
};

// A case is right when every token of the number is the likeliest one behind those before it, which
// is what greedy decoding would write; one pass tells that for many cases. The model may be on any
// device; a length past its context is tried all the same. report(cases done) may throw.
Grid score_passkey(nn::Model& model, const text::Tokenizer& tokenizer,
                   const PasskeyOptions& options,
                   const std::function<void(int64_t cases)>& report = {});

}  // namespace tempera::eval
