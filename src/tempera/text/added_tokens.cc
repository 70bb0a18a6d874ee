#include "tempera/text/added_tokens.h"

#include "tempera/text/unicode.h"

namespace tempera::text {
namespace {

bool inside_word(std::string_view text, const Range& range) {
  return (range.begin > 0 && is_word(last_character(text.substr(0, range.begin)).code)) ||
         (range.end < text.size() && is_word(character_at(text, range.end).code));
}

size_t skip_spaces_left(std::string_view text, size_t at, size_t limit) {
  while (at > limit) {
    const Character c = last_character(text.substr(0, at));
    if (!is_space(c.code)) break;
    at -= c.size;
  }
  return at;
}

size_t skip_spaces_right(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Character c = character_at(text, at);
    if (!is_space(c.code)) break;
    at += c.size;
  }
  return at;
}

}  // namespace

void AddedTokenFinder::add(const AddedToken& token) {
  trie_.add(token.normalized ? token.pattern : token.content, static_cast<int32_t>(tokens_.size()));
  tokens_.push_back(token);
}

void AddedTokenFinder::find(std::string_view text, bool specials,
                            std::vector<Segment>& segments) const {
  segments.clear();
  size_t done = 0;
  for (size_t at = 0; !trie_.empty() && at < text.size();) {
    const Trie::Match match =
        trie_.may_start(text[at]) ? trie_.longest(text.substr(at)) : Trie::Match{};
    if (match.size == 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(match.value)];
    Range range{at, at + match.size};
    at = range.end;
    if (range.begin < done || (token.special && !specials) ||
        (token.single_word && inside_word(text, range)))
      continue;
    if (token.lstrip) range.begin = skip_spaces_left(text, range.begin, done);
    if (token.rstrip) range.end = skip_spaces_right(text, range.end);
    if (done < range.begin) segments.push_back({{done, range.begin}, -1});
    segments.push_back({range, token.id});
    done = range.end;
  }
  if (done < text.size()) segments.push_back({{done, text.size()}, -1});
}

}  // namespace tempera::text
