#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/data/random.h"
#include "tempera/eval/haystack.h"
#include "tempera/eval/json_lines.h"
#include "tempera/eval/request.h"

// Questions about long texts, at any length: out of built-in or given text, or out of jsonl files.
namespace tempera::eval {

struct LongTaskOptions {
  std::vector<std::string> hay = {};  // text and jsonl files; none: built-in sentences
  std::string file = {};              // the examples of the tasks that have some
  std::vector<int64_t> lengths = {512, 1024, 2048};      // tokens, question and answer included
  std::vector<double> depths = {0, 0.25, 0.5, 0.75, 1};  // 0: the begin of the text
  int64_t cases = 4;                                     // for each length and depth
  int64_t needles = 4;  // sentences that are hidden where a task hides several
  int64_t digits = 5;   // of the numbers in them
  int64_t seed = 0;
};

enum class HitRule {
  kEach,  // every request is a question of its own: right where greedy decoding writes it
  kAny,   // right where greedy decoding writes one of them
  kBest   // right where the one at `gold` is the likeliest
};

struct LongCase {
  std::vector<Request> requests;  // of one group
  HitRule rule = HitRule::kEach;
  size_t gold = 0;
};

// What all cases of a task are made from.
struct LongSource {
  const text::Tokenizer& tokenizer;
  const LongTaskOptions& options;
  std::optional<Haystack> hay = {};     // of the tasks that hide something in text
  std::vector<JsonLine> examples = {};  // of the tasks with a file
};

struct LongPlace {
  int64_t length = 0;
  double depth = 0;
  size_t index = 0;  // of the case, over all lengths and depths
  size_t group = 0;
  data::RandomStream random;
};

struct LongTask {
  std::string name;
  std::string help;
  enum class Source { kHay, kNothing, kFile };
  Source source = Source::kHay;  // what its texts are made from
  bool depths = false;           // the answer's place can be chosen
  LongCase (*make)(const LongSource& source, LongPlace place);
};

const std::vector<LongTask>& long_tasks();
// Null where there is none of this name.
const LongTask* find_long_task(std::string_view name);
// Reads what the task needs.
LongSource open_source(const LongTask& task, const LongTaskOptions& options,
                       const text::Tokenizer& tokenizer);
// Throws UsageError for what cannot be asked.
void check_long_options(const LongTask& task, const LongTaskOptions& options);
// Case `number` of a length and a depth. Its random numbers, and with them its text, depend on
// these, the task and the seed alone; no two cases have the same.
struct CaseOf {
  int64_t length = 0;
  double depth = 0;
  size_t number = 0;
};
data::RandomStream case_stream(const LongTask& task, const LongTaskOptions& options,
                               const CaseOf& which);

// The tasks whose text is filled with parts of the same kind as the one that is asked for. The text
// has at most the given length.
LongCase make_key_value(const LongSource& source, LongPlace place);
LongCase make_classify(const LongSource& source, LongPlace place);
LongCase make_rerank(const LongSource& source, LongPlace place);
LongCase make_qa(const LongSource& source, LongPlace place);
LongCase make_document_qa(const LongSource& source, LongPlace place);

}  // namespace tempera::eval
