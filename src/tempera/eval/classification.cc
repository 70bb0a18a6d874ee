#include "tempera/eval/classification.h"

#include "tempera/base/error.h"

namespace tempera::eval {

double ClassScores::f1_binary() const {
  TEMPERA_CHECK(f1_of_class.size() == 2, "F1 of the class 1 asked for, and there are ",
                f1_of_class.size(), " classes; it is for two, use the macro mean");
  return f1_of_class[1];
}

ClassScores score_classes(std::span<const int64_t> answers, std::span<const int64_t> right,
                          int64_t classes) {
  TEMPERA_CHECK(answers.size() == right.size() && !right.empty(), answers.size(), " answers and ",
                right.size(), " right ones given; as many of both expected, at least one");
  TEMPERA_CHECK(classes >= 1, classes, " classes given, at least 1 expected");
  struct Counts {
    int64_t answered = 0, asked = 0, both = 0;
  };
  std::vector<Counts> counts(static_cast<size_t>(classes));
  const auto of = [&](int64_t label) -> Counts& {
    TEMPERA_CHECK(label >= 0 && label < classes, "class ", label, " given, 0 to ", classes - 1,
                  " expected");
    return counts[static_cast<size_t>(label)];
  };
  ClassScores scores{.examples = static_cast<int64_t>(right.size())};
  int64_t hits = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    of(answers[i]).answered += 1;
    of(right[i]).asked += 1;
    if (answers[i] != right[i]) continue;
    of(right[i]).both += 1;
    hits += 1;
  }
  scores.accuracy = static_cast<double>(hits) / static_cast<double>(right.size());
  double sum = 0, seen = 0;
  for (const auto& [answered, asked, both] : counts) {
    const int64_t size = answered + asked;
    const double f1 = size > 0 ? 2 * static_cast<double>(both) / static_cast<double>(size) : 0;
    scores.f1_of_class.push_back(f1);
    sum += f1;
    seen += size > 0 ? 1 : 0;
  }
  scores.f1_macro = sum / seen;
  return scores;
}

}  // namespace tempera::eval
