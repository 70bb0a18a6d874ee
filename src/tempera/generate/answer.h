#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/nn/model.h"
#include "tempera/text/tokenizer.h"

namespace tempera::generate {

// What greedy decoding writes behind each prompt, up to the end of the text: `max_tokens` at most,
// and no more than is enough. Prompts may be longer than the length that the model was trained at.
std::vector<std::string> answers_to(
    nn::Model& model, const text::Tokenizer& tokenizer,
    const std::vector<std::vector<int64_t>>& prompts, int64_t max_tokens,
    const std::function<bool(size_t prompt, std::string_view so_far)>& enough);

}  // namespace tempera::generate
