#include "tempera/eval/request.h"

#include <string>

#include "tempera/base/error.h"

namespace tempera::eval {
namespace {

constexpr std::string_view kBlanks = " \t\n\v\f\r";
constexpr text::EncodeOptions kWhole{.add_special = true, .parse_special = false};

std::vector<int32_t> start_of_text(const text::Tokenizer& tokenizer) {
  const auto special = tokenizer.special();
  const auto id = special.begin_of_text ? special.begin_of_text : special.end_of_text;
  TEMPERA_CHECK(id,
                "an empty context needs a begin-of-text or end-of-text token, and the "
                "tokenizer has none");
  return {*id};
}

}  // namespace

Request encode_pair(const text::Tokenizer& tokenizer, std::string_view context,
                    std::string_view continuation, size_t group) {
  Request request{.context = {}, .continuation = {}, .group = group};
  const size_t last = context.find_last_not_of(kBlanks);
  const auto kept = context.substr(0, last == std::string_view::npos ? 0 : last + 1);
  const std::string tail = std::string(context.substr(kept.size())) + std::string(continuation);
  std::vector<int32_t> whole;
  if (kept.empty()) {
    request.context = start_of_text(tokenizer);
    tokenizer.encode(tail, request.continuation);
  } else {
    tokenizer.encode(kept, request.context, kWhole);
    tokenizer.encode(std::string(kept) + tail, whole, kWhole);
    TEMPERA_CHECK(whole.size() > request.context.size(), "the continuation '", tail,
                  "' has no tokens of its own");
    const auto cut = static_cast<std::ptrdiff_t>(request.context.size());
    request.continuation.assign(whole.begin() + cut, whole.end());
  }
  return request;
}

}  // namespace tempera::eval
