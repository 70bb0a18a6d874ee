#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tempera/config/options.h"
#include "tempera/nn/model.h"
#include "tempera/text/sequence_tokens.h"
#include "tempera/text/tokenizer.h"

// What an encoder-decoder writes for a text that it reads.
namespace tempera::generate {

struct BeamOptions {
  int64_t beams = 1;  // 1: greedy
  double length_penalty =
      1;                   // a hypothesis counts its log-probability over its length to this power
  int64_t max_tokens = 0;  // of an output; 0: twice those of the source, and ten

  void declare(config::Options& options);
};

struct Hypothesis {
  std::vector<int64_t> tokens;  // without the end
  double log_probability = 0;   // with the end
  double score = 0;             // over the length
  bool ended = false;           // otherwise there was no more room
};

// The best output for each source, in their order. report(sources done) may throw.
using BeamReport = std::function<void(int64_t done)>;
std::vector<Hypothesis> beam_search(nn::Model& model,
                                    const std::vector<std::vector<int64_t>>& sources,
                                    const text::SequenceTokens& ids, const BeamOptions& options,
                                    const BeamReport& report = {});

struct Translation {
  std::string text;
  Hypothesis hypothesis;
};
// Sources longer than the model's context are cut.
std::vector<Translation> translate(nn::Model& model, const text::Tokenizer& tokenizer,
                                   const std::vector<std::string>& sources,
                                   const BeamOptions& options, const BeamReport& report = {});

}  // namespace tempera::generate
