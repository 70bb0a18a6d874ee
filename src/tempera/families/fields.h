#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tempera::families {

// One pass over the fields of a config.json, which describes them for reading and for writing
// alike: a family lists its fields once. Reading sets the members, writing makes the JSON.
// NOLINTNEXTLINE(bugprone-exception-escape): moving JSON checks itself, and throws nothing.
class Fields {
 public:
  using Json = nlohmann::json;

  // `where` names the file in messages.
  static Fields reader(const Json& json, std::string where);
  static Fields writer();

  bool reading() const { return reading_; }

  // A field without a fallback must be there. Null counts as absent.
  void integer(std::string_view key, int64_t& member, std::optional<int64_t> fallback = {});
  void number(std::string_view key, double& member, std::optional<double> fallback = {});
  void flag(std::string_view key, bool& member, bool fallback);

  // The member as one of some words; another word is refused.
  template <class Enum>
  void choice(std::string_view key, Enum& member, const std::optional<std::string>& fallback,
              const std::vector<std::pair<std::string, Enum>>& words) {
    std::vector<std::string> known;
    std::string word;
    for (const auto& [text, value] : words) {
      known.push_back(text);
      if (value == member && word.empty()) word = text;
    }
    one_of(key, word, fallback, known);
    for (const auto& [text, value] : words)
      if (text == word) member = value;
  }

  // What the model cannot express otherwise: any other value is refused. Absent: taken as this.
  void fixed(std::string_view key, const Json& value);
  // Fields that say nothing about the logits. They are not written.
  void ignore(std::initializer_list<std::string_view> keys);

  // Whether the field is there, if only as null: files switch a part off so whose absence means
  // the family's own number.
  bool stated(std::string_view key) const { return json_.contains(key); }

  // For what is not a plain field.
  const Json* find(std::string_view key);
  void set(std::string_view key, Json value) { json_[std::string(key)] = std::move(value); }

  // Throws, naming the fields that nobody asked for and that switch something on.
  void finish() const;
  const Json& json() const { return json_; }
  const std::string& where() const { return where_; }

 private:
  // Null for an absent field: the member then has the fallback.
  template <class T>
  const Json* find_or(std::string_view key, T& member, const std::optional<T>& fallback);
  void one_of(std::string_view key, std::string& word, const std::optional<std::string>& fallback,
              const std::vector<std::string>& known);

  Json json_;
  std::string where_;
  bool reading_ = false;
  std::set<std::string, std::less<>> seen_;
};

}  // namespace tempera::families
