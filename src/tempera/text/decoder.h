#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tempera/text/pattern.h"

namespace tempera::text {

// One step from pieces to text. A piece may come to hold a part of a UTF-8 character: what is
// decoded are bytes.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& pieces) const = 0;
};

using Decoders = std::vector<std::unique_ptr<const Decoder>>;

std::unique_ptr<Decoder> byte_level_decoder();
std::unique_ptr<Decoder> byte_fallback_decoder();
std::unique_ptr<Decoder> fuse_decoder();
// Takes up to `start` and `stop` copies of the content off the ends of every piece.
std::unique_ptr<Decoder> strip_decoder(std::string content, size_t start, size_t stop);
std::unique_ptr<Decoder> replace_decoder(Pattern pattern, std::string content);
std::unique_ptr<Decoder> metaspace_decoder(std::string replacement, bool prefixed);
std::unique_ptr<Decoder> wordpiece_decoder(std::string prefix, bool cleanup);
std::unique_ptr<Decoder> bpe_decoder(std::string suffix);
// Pieces with a blank between them, where a tokenizer states no decoder.
std::unique_ptr<Decoder> spaced_decoder();

}  // namespace tempera::text
