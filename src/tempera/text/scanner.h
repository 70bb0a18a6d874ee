#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tempera::text {

// The patterns that most byte-level models split words with.
extern const std::string kGpt2Pattern;
extern const std::string kLlama3Pattern;
extern const std::string kQwen2Pattern;

// The end of the pattern's match that starts at `at`. Every character belongs to a match.
size_t scan_gpt2(std::string_view text, size_t at);
size_t scan_llama3(std::string_view text, size_t at);
size_t scan_qwen2(std::string_view text, size_t at);

}  // namespace tempera::text
