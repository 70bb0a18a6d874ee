#include "tempera/eval/passkey.h"

#include "tempera/base/error.h"
#include "tempera/eval/haystack.h"
#include "tempera/eval/likelihood.h"

namespace tempera::eval {
namespace {

HiddenText passkey_text(const std::string& key, double depth) {
  return {.preamble = "Somewhere in the text below there is a pass key. Find it and remember it.\n",
          .needles = {{.depth = depth,
                       .text = " The pass key is " + key + ". Remember it: " + key +
                               " is the pass key."}},
          .questions = {{.text = "\nWhat is the pass key? The pass key is", .answer = " " + key}}};
}

void check_passkey(const PasskeyOptions& options) {
  if (options.lengths.empty() || options.depths.empty() || options.cases < 1 ||
      options.digits < 1 || options.digits > 18)
    throw UsageError(
        concat("passkey: ", options.lengths.size(), " lengths, ", options.depths.size(),
               " depths, ", options.cases, " cases and ", options.digits,
               " digits given; at least one of each is needed, and at most 18 digits"));
  for (const double depth : options.depths)
    if (!(depth >= 0 && depth <= 1))
      throw UsageError(concat("passkey: a depth of ", depth,
                              " given; 0 is the begin of the text, 1 "
                              "its end"));
}

}  // namespace

Grid score_passkey(nn::Model& model, const text::Tokenizer& tokenizer,
                   const PasskeyOptions& options,
                   const std::function<void(int64_t cases)>& report) {
  check_passkey(options);
  const Haystack hay(options.hay, tokenizer);
  Grid grid = Grid::empty("passkey", options.lengths, options.depths);
  const uint64_t seed = data::derive_seed(options.seed, "passkey");
  int64_t done = 0;
  for (size_t l = 0; l < options.lengths.size(); ++l) {
    std::vector<Request> requests;
    std::vector<size_t> depths;
    for (size_t d = 0; d < options.depths.size(); ++d) {
      for (int64_t i = 0; i < options.cases; ++i) {
        // A case is the same at every depth, and does not depend on which others are asked.
        data::RandomStream random(seed, static_cast<uint64_t>(options.lengths[l]),
                                  static_cast<uint32_t>(i));
        const auto key = random_number(random, options.digits);
        const auto made = hide(passkey_text(key, options.depths[d]), hay, tokenizer,
                               options.lengths[l], random, requests.size());
        requests.push_back(made.front());
        depths.push_back(d);
      }
    }
    const auto scores =
        score_requests(model, requests, {.max_length = 0, .report = [&](int64_t now) {
                                           if (report) report(done + now);
                                         }});
    for (size_t i = 0; i < scores.size(); ++i) {
      GridCell& cell = grid.cell(l, depths[i]);
      ++cell.cases;
      if (scores[i].greedy) ++cell.hits;
    }
    done += static_cast<int64_t>(requests.size());
  }
  return grid;
}

}  // namespace tempera::eval
