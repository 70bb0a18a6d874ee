#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tempera/data/dataset.h"
#include "tempera/eval/passkey.h"
#include "tempera/eval/perplexity.h"
#include "tempera/nn/model.h"
#include "tempera/text/tokenizer.h"

namespace tempera::adapt {

// The same tokens for every model that is compared.
struct MeasureOptions {
  std::vector<int64_t> lengths = {};  // of the windows of text
  int64_t tokens = 0;                 // of the calibration's own text, at most, at each length
  eval::PasskeyOptions passkey = {};  // no cases: left out
};

// Text that no model was calibrated on: documents, all of which are measured, or the held-out part
// of the calibration's own.
struct HeldOutText {
  std::vector<eval::Document> documents = {};
  std::function<std::shared_ptr<const data::Dataset>(int64_t length)> own = {};
};

// {"perplexity": {LENGTH: scores}, "passkey": grid or null}. report(tokens read) may throw.
nlohmann::ordered_json measure(nn::Model& model, const text::Tokenizer& tokenizer,
                               const HeldOutText& text, const MeasureOptions& options,
                               const std::function<void(int64_t tokens)>& report);

// The mean row scales of every layer and head over some rows of text:
// [{"layer", "q": [..] or null, "k", "v"}, ...].
nlohmann::ordered_json learned_temperatures(nn::Model& model, const nn::Batch& batch);

}  // namespace tempera::adapt
