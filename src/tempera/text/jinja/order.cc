// Equality, order and membership of values, as Python has them.
#include <algorithm>
#include <cmath>

#include "tempera/base/error.h"
#include "tempera/text/jinja/string.h"
#include "tempera/text/jinja/value.h"

namespace tempera::text::jinja {
namespace {

bool same_items(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [&](const Value& x, const Value& y) { return equal(x, y, budget); });
}

bool same_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
    const Value* other = b.find(item.first);
    return other && equal(item.second, *other, budget);
  });
}

bool ordered(const Sequence& sequence) {
  return sequence.kind == SequenceKind::kList || sequence.kind == SequenceKind::kTuple;
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.steps(1);
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.integer() && b.integer()) return *a.integer() == *b.integer();
  if (a.number() && b.number()) return *a.number() == *b.number();
  if (a.string() && b.string()) {
    budget.bytes(std::min(a.string()->size(), b.string()->size()));
    return *a.string() == *b.string();
  }
  if (a.dict() && b.dict()) return same_dicts(*a.dict(), *b.dict(), budget);
  const Sequence *left = a.sequence(), *right = b.sequence();
  if (left && right && left->kind == right->kind) {
    if (left == right) return true;
    TEMPERA_CHECK(ordered(*left) || left->kind == SequenceKind::kRange, "two values of the type ",
                  a.type_name(), " cannot be compared; use the filter 'list'");
    return same_items(left->items, right->items, budget);
  }
  const auto *x = a.get<std::shared_ptr<Namespace>>(), *y = b.get<std::shared_ptr<Namespace>>();
  if (x && y) return *x == *y;
  const auto *f = a.get<std::shared_ptr<const Callable>>(),
             *g = b.get<std::shared_ptr<const Callable>>();
  return f && g && *f == *g;
}

int compare(const Value& a, const Value& b, Budget& budget) {
  budget.steps(1);
  require_defined(a);
  require_defined(b);
  const auto sign = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (a.integer() && b.integer()) return sign(*a.integer(), *b.integer());
  if (a.number() && b.number()) {
    TEMPERA_CHECK(!std::isnan(*a.number()) && !std::isnan(*b.number()),
                  "the order of nan is not supported");
    return sign(*a.number(), *b.number());
  }
  if (a.string() && b.string()) {  // the order of UTF-8 bytes is that of the code points
    budget.bytes(std::min(a.string()->size(), b.string()->size()));
    return a.string()->compare(*b.string());
  }
  const Sequence *left = a.sequence(), *right = b.sequence();
  TEMPERA_CHECK(left && right && left->kind == right->kind && ordered(*left),
                "values of the types ", a.type_name(), " and ", b.type_name(), " have no order");
  const size_t shared = std::min(left->items.size(), right->items.size());
  for (size_t i = 0; i < shared; ++i)
    if (!equal(left->items[i], right->items[i], budget))
      return compare(left->items[i], right->items[i], budget);
  return sign(left->items.size(), right->items.size());
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (const auto* text = container.string()) {
    TEMPERA_CHECK(item.string(), "'in' with a text on the right needs a text on the left, not a ",
                  item.type_name());
    budget.search(text->size(), item.string()->size());
    return text->find(*item.string()) != text->npos;
  }
  if (const auto* dict = container.dict()) return !item.is_undefined() && dict->find(item);
  const auto items = iterate(container, budget);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& other) { return equal(item, other, budget); });
}

}  // namespace tempera::text::jinja
