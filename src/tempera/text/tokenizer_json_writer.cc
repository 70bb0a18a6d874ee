#include "tempera/text/tokenizer_json_writer.h"

#include "tempera/base/error.h"

namespace tempera::text {
namespace {

using Json = nlohmann::ordered_json;

Json added_json(const std::vector<AddedToken>& added) {
  Json list = Json::array();
  for (const auto& token : added)
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  return list;
}

}  // namespace

nlohmann::json byte_level_json(bool use_regex, bool add_prefix_space) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

std::string tokenizer_json_text(const BpeJson& parts) {
  // Not through Json's objects, which look through all keys for each new one.
  std::string vocabulary, merges;
  for (size_t id = 0; id < parts.pieces.size(); ++id)
    if (!parts.pieces[id].empty())
      vocabulary +=
          concat(vocabulary.empty() ? "" : ",\n      ", Json(parts.pieces[id]).dump(), ": ", id);
  for (const auto& merge : parts.merges)
    merges += concat(merges.empty() ? "" : ",\n      ", Json(merge).dump());
  const Json unknown = parts.unknown.empty() ? Json() : Json(parts.unknown);
  return concat(
      "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n",
      "  \"added_tokens\": ", added_json(parts.added).dump(),
      ",\n  \"normalizer\": ", parts.normalizer.dump(),
      ",\n  \"pre_tokenizer\": ", parts.pre_tokenizer.dump(),
      ",\n  \"post_processor\": ", parts.post_processor.dump(),
      ",\n  \"decoder\": ", parts.decoder.dump(), ",\n  \"model\": {\n    \"type\": \"BPE\",\n",
      "    \"dropout\": null,\n    \"unk_token\": ", unknown.dump(),
      ",\n    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n",
      "    \"fuse_unk\": ", Json(parts.fuse_unknown).dump(),
      ",\n    \"byte_fallback\": ", Json(parts.byte_fallback).dump(),
      ",\n    \"ignore_merges\": ", Json(parts.whole_words).dump(), ",\n    \"vocab\": {\n      ",
      vocabulary, "\n    },\n    \"merges\": [\n      ", merges, "\n    ]\n  }\n}\n");
}

}  // namespace tempera::text
