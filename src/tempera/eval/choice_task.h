#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/eval/json_lines.h"

// Questions with choices, and words to be guessed, out of jsonl files: which text is asked for
// which task. Contexts and continuations are those of lm-eval 0.4, character by character.
namespace tempera::eval {

struct ChoiceExample {
  std::vector<std::string> contexts;       // one for each choice
  std::vector<std::string> continuations;  // one for each choice
  std::vector<int64_t> characters;         // of each choice, which acc_norm divides by
  size_t gold = 0;
};

// One way in which files write a task's examples.
struct ChoiceForm {
  std::vector<std::string> fields;  // which it has to have
  ChoiceExample (*read)(const JsonLine& fields);
};

struct ChoiceTask {
  std::string name;
  std::string help;
  bool norm = false;   // acc_norm is reported too
  bool guess = false;  // one continuation, which greedy decoding has to write; with perplexity
  std::vector<ChoiceForm> forms;  // the first that fits
};

const std::vector<ChoiceTask>& choice_tasks();
// Null where there is none of this name.
const ChoiceTask* find_choice_task(std::string_view name);

// The first `limit` examples (0: all). Throws with the number of the line where something is
// missing.
std::vector<ChoiceExample> read_examples(const ChoiceTask& task, const std::filesystem::path& file,
                                         int64_t limit = 0);

// The text of HellaSwag without the marks of the pages it was taken from.
std::string clean_hellaswag(std::string text);

}  // namespace tempera::eval
