#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tempera/text/decoder.h"
#include "tempera/text/normalizer.h"
#include "tempera/text/pre_tokenizer.h"

namespace tempera::text {

// Append the steps that an object of tokenizer.json states; a Sequence gives several.
void add_normalizers(const nlohmann::json& object, const std::string& where, Normalizers& steps);
void add_decoders(const nlohmann::json& object, const std::string& where, Decoders& steps);
// With raw_bytes, a ByteLevel that comes last leaves the bytes as they are; the result tells
// whether one did.
bool add_pre_tokenizers(const nlohmann::json& object, const std::string& where, bool raw_bytes,
                        PreTokenizers& steps);

}  // namespace tempera::text
