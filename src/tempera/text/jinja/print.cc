// Values as text: str(), repr() and JSON.
#include <algorithm>
#include <cmath>

#include "tempera/base/error.h"
#include "tempera/text/jinja/string.h"
#include "tempera/text/jinja/value.h"

namespace tempera::text::jinja {
namespace {

class Printer {
 public:
  explicit Printer(Budget& budget) : budget_(budget) {}

  void print(const Value& value) {
    if (value.is_undefined()) return put("Undefined");
    if (value.is_none()) return put("None");
    if (const bool* held = value.get<bool>()) return put(*held ? "True" : "False");
    if (const int64_t* held = value.get<int64_t>()) return put(std::to_string(*held));
    if (const double* held = value.get<double>()) return put(repr(*held));
    if (const auto* held = value.string())
      return put(value.is_markup() ? concat("Markup(", repr(*held), ")") : repr(*held));
    if (const auto* held = value.sequence()) return print_sequence(*held, value.type_name());
    if (const auto* held = value.dict()) return print_dict(*held);
    if (const auto* held = value.get<std::shared_ptr<Namespace>>()) return print_namespace(**held);
    throw Error(concat("a value of the type ", value.type_name(), " cannot be printed"));
  }

  std::string take() { return std::move(out_); }

 private:
  void put(std::string_view text) {
    budget_.grow(out_.size(), text.size());
    out_ += text;
  }

  void print_sequence(const Sequence& sequence, const char* type) {
    using Kind = SequenceKind;
    // How Python prints a generator depends on its memory; a range has lost its bounds.
    TEMPERA_CHECK(sequence.kind != Kind::kGenerator && sequence.kind != Kind::kRange, "a ", type,
                  " cannot be printed; use the filter 'list' or 'join'");
    const bool tuple = sequence.kind == Kind::kTuple;
    const bool view = !tuple && sequence.kind != Kind::kList;
    if (view) put(concat(type, "("));
    put(tuple ? "(" : "[");
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) put(", ");
      print(sequence.items[i]);
    }
    put(!tuple ? "]" : sequence.items.size() == 1 ? ",)" : ")");
    if (view) put(")");
  }

  void print_dict(const Dict& dict) {
    put("{");
    for (size_t i = 0; i < dict.items.size(); ++i) {
      if (i > 0) put(", ");
      print(dict.items[i].first);
      put(": ");
      print(dict.items[i].second);
    }
    put("}");
  }

  void print_namespace(const Namespace& names) {
    put("<Namespace {");
    for (size_t i = 0; i < names.attributes.size(); ++i) {
      if (i > 0) put(", ");
      put(repr(names.attributes[i].first));
      put(": ");
      print(names.attributes[i].second);
    }
    put("}>");
  }

  Budget& budget_;
  std::string out_;
};

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& value) {
    if (value.is_none()) return put("null");
    if (const auto* held = value.string()) return put(json_quote(*held, style_.ascii_only));
    if (const auto scalar = number(value)) return put(*scalar);
    if (const auto* held = value.dict()) return write_dict(*held);
    const auto* held = value.sequence();
    TEMPERA_CHECK(held && (held->kind == SequenceKind::kList || held->kind == SequenceKind::kTuple),
                  "tojson: a value of the type ", value.type_name(), " has no JSON form");
    write_list(held->items);
  }

  std::string take() { return std::move(out_); }

 private:
  void put(std::string_view text) {
    budget_.grow(out_.size(), text.size());
    out_ += text;
  }

  static std::optional<std::string> number(const Value& value) {
    if (const bool* held = value.get<bool>()) return *held ? "true" : "false";
    if (const int64_t* held = value.get<int64_t>()) return std::to_string(*held);
    const double* held = value.get<double>();
    if (!held) return std::nullopt;
    if (std::isnan(*held)) return "NaN";
    if (std::isinf(*held)) return *held < 0 ? "-Infinity" : "Infinity";
    return repr(*held);
  }

  std::string key(const Value& value) const {
    if (const auto* held = value.string()) return *held;
    if (value.is_none()) return "null";
    const auto scalar = number(value);
    TEMPERA_CHECK(scalar, "tojson: a key of the type ", value.type_name(), " has no JSON form");
    return *scalar;
  }

  void new_line() {
    if (!style_.indent) return;
    put("\n");
    for (int i = 0; i < level_; ++i) put(*style_.indent);
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) return put("[]");
    put("[");
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) put(style_.item_separator);
      new_line();
      write(items[i]);
    }
    --level_;
    new_line();
    put("]");
  }

  void write_dict(const Dict& dict) {
    if (dict.items.empty()) return put("{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys)
      std::stable_sort(items.begin(), items.end(), [&](const auto* a, const auto* b) {
        return compare(a->first, b->first, budget_) < 0;
      });
    put("{");
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) put(style_.item_separator);
      new_line();
      put(json_quote(key(items[i]->first), style_.ascii_only));
      put(style_.key_separator);
      write(items[i]->second);
    }
    --level_;
    new_line();
    put("}");
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::string to_text(const Value& value, Budget& budget) {
  if (value.is_undefined()) return "";
  if (const auto* text = value.string()) {
    budget.bytes(text->size());
    return *text;
  }
  return to_repr(value, budget);
}

std::string to_repr(const Value& value, Budget& budget) {
  Printer printer(budget);
  printer.print(value);
  return printer.take();
}

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value);
  return writer.take();
}

}  // namespace tempera::text::jinja
