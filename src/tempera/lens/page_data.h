#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "tempera/lens/subject.h"

// What a page shows, as the JSON that its scripts read (web/data.ts).
namespace tempera::lens {

// How much a page holds of every head.
struct Detail {
  int64_t cell = 1;    // rows and keys in a cell of the map
  int64_t stride = 1;  // of the rows whose top keys are there
  int64_t most = 1;    // top keys of a row; 0 where the map has every weight
  int64_t bins = 1;    // of the positions in the charts
};
// The finest of which all heads fit into so many bytes.
Detail detail_of(const Attention& attention, int64_t bytes);

// A page of all heads is below 5 MB, of which this is left for numbers, before base64.
inline constexpr int64_t kPageBytes = 3'500'000;

// The means over all rows, of every head: what --json prints too.
nlohmann::ordered_json metrics_json(const Attention& attention);
nlohmann::ordered_json next_json(const Subject& subject);
// Mean of the losses; null where nothing is predicted.
nlohmann::ordered_json loss_json(const Subject& subject);

// One for each token, as pages take them.
std::vector<float> losses_of(const Subject& subject);

// One or two subjects; report is told how many attentions are done.
nlohmann::ordered_json page_data(std::span<const Subject> subjects, int64_t bytes,
                                 const std::function<void(int64_t)>& report);
// What the program behind a live page can do for it.
struct Offers {
  bool write = false;     // a model with other temperatures
  bool generate = false;  // text
};
// The same for a page that asks for weights when it needs them: it holds none. `shown` is what its
// requests then name.
nlohmann::ordered_json live_data(std::span<const Subject> subjects, const Offers& offers,
                                 int64_t shown);

// Weights as pages take them: 16 bits each, 65535 is 1.
std::vector<uint16_t> in_16_bits(const torch::Tensor& weights);

}  // namespace tempera::lens
