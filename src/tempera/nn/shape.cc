// The parts of the configuration that need no torch: readers of model files link these alone.
#include <algorithm>
#include <charconv>

#include "tempera/base/error.h"
#include "tempera/nn/config.h"

namespace tempera::nn {
namespace {

template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) throw UsageError(concat(parts...));
}

int64_t parse_layer(std::string_view digits, std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  require(error == std::errc() && end == digits.data() + digits.size() && value >= 0, "'", text,
          "' is no list of layers: give 'all', or ranges such as '0-3,6' or '4-'");
  return value;
}

}  // namespace

int64_t ModelConfig::size_of_mlp() const {
  if (mlp_size > 0) return mlp_size;
  if (!is_gated(activation)) return 4 * width;
  // Three matrices with as many numbers as the two of 4 times the width, in multiples of 64.
  return (8 * width / 3 + 63) / 64 * 64;
}

int64_t ModelConfig::layer_count(AttentionKind attention) const {
  switch (kind) {
    case ModelKind::kDecoder:
      return attention == AttentionKind::kCausal ? layers : 0;
    case ModelKind::kEncoder:
      return attention == AttentionKind::kEncoder ? layers : 0;
    case ModelKind::kEncoderDecoder:
      return attention == AttentionKind::kEncoder || decoder_layers == 0 ? layers : decoder_layers;
  }
  return 0;
}

int64_t ModelConfig::rotary_size() const {
  return 2 * static_cast<int64_t>(static_cast<double>(size_of_head()) * rope.fraction / 2);
}

std::optional<int64_t> ModelConfig::attention_window(int64_t layer) const {
  const auto count = std::max(layers, decoder_layers);
  const bool has = window > 0 && parse_layers(window_layers, count)[static_cast<size_t>(layer)];
  return has ? std::optional(window) : std::nullopt;
}

std::vector<bool> parse_layers(std::string_view text, int64_t count) {
  std::vector<bool> chosen(static_cast<size_t>(count), text == "all");
  if (text == "all") return chosen;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto part = text.substr(begin, end - begin);
    const size_t dash = part.find('-');
    const int64_t first = parse_layer(part.substr(0, dash), text);
    int64_t last = first;
    if (dash != std::string_view::npos)
      last = dash + 1 == part.size() ? count - 1 : parse_layer(part.substr(dash + 1), text);
    require(first < count && last < count, "layers '", text, "': the model has the layers 0 to ",
            count - 1);
    require(first <= last, "layers '", text, "': the range ", part, " has its ends the wrong way");
    for (int64_t layer = first; layer <= last; ++layer) chosen[static_cast<size_t>(layer)] = true;
    begin = end + 1;
  }
  return chosen;
}

}  // namespace tempera::nn
