#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tempera/base/error.h"
#include "tempera/text/chat.h"

namespace {

const nlohmann::ordered_json& variables() {
  static const auto json = nlohmann::ordered_json::parse(R"json({
    "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": " hé\n"},
                 {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f",
                  "arguments": {"a": 1, "b": [1.5, true, null]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})json");
  return json;
}

}  // namespace

// A template is refused, or gives text that is UTF-8 and within the limits, twice the same.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const tempera::text::TemplateLimits limits{
      .source_bytes = 1 << 16, .output_bytes = 1 << 16, .steps = 100'000};
  tempera::text::RenderOptions options;
  options.now = std::tm{};
  options.now->tm_mday = 1;
  try {
    const tempera::text::Template read(source, "input", limits);
    const auto first = read.render(variables(), options);
    if (first.text.size() > limits.output_bytes) std::abort();
    if (read.render(variables(), options).text != first.text) std::abort();
    nlohmann::json(first.text).dump();  // throws for what is not UTF-8
    for (const auto& span : first.generated)
      if (span.begin > span.end || span.end > first.text.size()) std::abort();
  } catch (const tempera::Error&) {  // a refusal is the usual answer
  }
  return 0;
}
