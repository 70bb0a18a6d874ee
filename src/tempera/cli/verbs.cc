#include "tempera/cli/verb.h"

// The table of verbs. Each word NAME stands for a file NAME.cc with `Verb NAME_verb()`.
#define TEMPERA_VERBS(X) \
  X(compare)             \
  X(study)               \
  X(train)               \
  X(finetune)            \
  X(watch)               \
  X(calibrate)           \
  X(eval)                \
  X(report)              \
  X(generate)            \
  X(chat)                \
  X(serve)               \
  X(embed)               \
  X(lens)                \
  X(info)                \
  X(data)                \
  X(tokenize)            \
  X(methods)             \
  X(export)              \
  X(bench)               \
  X(completion)          \
  X(man)

namespace tempera::cli {

#define TEMPERA_DECLARE_VERB(name) Verb name##_verb();
TEMPERA_VERBS(TEMPERA_DECLARE_VERB)
#undef TEMPERA_DECLARE_VERB

std::span<const Verb> all_verbs() {
#define TEMPERA_LIST_VERB(name) name##_verb(),
  static const std::vector<Verb> verbs = {TEMPERA_VERBS(TEMPERA_LIST_VERB)};
#undef TEMPERA_LIST_VERB
  return verbs;
}

std::vector<config::VerbDescription> describe_verbs() {
  std::vector<config::VerbDescription> described;
  for (const Verb& verb : all_verbs())
    described.push_back(verb.describe(verb.declare(config::Sources{})));
  return described;
}

}  // namespace tempera::cli
