#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tempera/data/dataset.h"
#include "tempera/eval/grid.h"
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

// What one model reached.
struct Measure {
  std::map<int64_t, eval::TextScores> perplexity = {};  // by the length of the windows
  std::optional<eval::Grid> passkey = {};
};

// report(tokens read) may throw.
Measure measure(nn::Model& model, const text::Tokenizer& tokenizer, const HeldOutText& text,
                const MeasureOptions& options, const std::function<void(int64_t tokens)>& report);

// {"perplexity": {LENGTH: scores}, "passkey": grid or null}, and back.
nlohmann::ordered_json to_json(const Measure& measure);
Measure measure_of(const nlohmann::ordered_json& json);

// The mean row scales of a layer by head; empty where it has none.
struct LayerTemperatures {
  std::vector<double> q = {}, k = {}, v = {};
};

// Over some rows of text, layer by layer.
std::vector<LayerTemperatures> learned_temperatures(nn::Model& model, const nn::Batch& batch);

}  // namespace tempera::adapt
