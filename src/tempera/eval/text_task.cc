#include "tempera/eval/text_task.h"

#include "tempera/base/error.h"
#include "tempera/config/common.h"
#include "tempera/eval/choices.h"
#include "tempera/eval/likelihood.h"
#include "tempera/eval/long_score.h"

namespace tempera::eval {
namespace {

using Report = std::function<void(int64_t done, int64_t all)>;

void check_file(std::string_view task, const TextTaskOptions& options) {
  if (options.task.file.empty())
    throw UsageError(concat("--task ", task, " needs its examples: give a jsonl file with --file"));
}

TextTaskResult run_choices(const ChoiceTask& task, nn::Model& model,
                           const text::Tokenizer& tokenizer, const TextTaskOptions& options,
                           const Report& report) {
  check_file(task.name, options);
  auto examples = read_examples(task, options.task.file, options.limit);
  const auto requests = requests_of(examples, tokenizer);
  const auto all = static_cast<int64_t>(requests.size());
  report(0, all);
  const auto likelihoods = score_requests(
      model, requests,
      {.max_length = model.config().context, .report = [&](int64_t done) { report(done, all); }});
  const auto scores = summarize(task, std::move(examples), likelihoods, options.task.seed);
  return {to_json(scores, options.samples), to_text(scores), to_figure(scores)};
}

TextTaskResult run_long(const LongTask& task, nn::Model& model, const text::Tokenizer& tokenizer,
                        const TextTaskOptions& options, const Report& report) {
  if (task.source == LongTask::Source::kFile) check_file(task.name, options);
  const LongTaskOptions asked = options.long_task();
  const int64_t all = long_task_cases(task, asked);
  report(0, all);
  const Grid grid =
      score_long_task(model, tokenizer, task, asked, [&](int64_t done) { report(done, all); });
  return {to_json(grid), to_text(grid), to_figure(grid)};
}

}  // namespace

LongTaskOptions TextTaskOptions::long_task() const {
  LongTaskOptions options = task;
  if (cases > 0) options.cases = cases;
  return options;
}

void TextTaskOptions::declare(config::Options& options) {
  options.section(config::Section::kMeasuring);
  options.option("file", task.file, "examples of a task, one JSON object per line");
  options.option("limit", limit, config::range(0, 1e9), "most examples to score; 0: all");
  options.option("log-samples", samples, "include the texts and scores of every example");
  options.renamed("samples",
                  "--samples is a number of answers; to include every example in the result, write "
                  "--log-samples");
  options.option("lengths", task.lengths, config::range(16, 1 << 24),
                 "long-context tasks: prompt lengths in tokens");
  options.option("depths", task.depths, config::range(0, 1),
                 "long-context tasks: needle position, from 0 (start) to 1 (end)");
  options.option("cases", cases, config::range(0, 1e6),
                 "long-context tasks: cases per length and depth, RULER: per task and length; 0: 4 "
                 "and 20");
  options.option("needles", task.needles, config::range(1, 144),
                 "long-context tasks: needles per prompt, where a task has several");
  config::seed_option(options, task.seed);
}

bool is_text_task(std::string_view name) {
  return find_long_task(name) != nullptr || find_choice_task(name) != nullptr;
}

std::vector<std::string> text_task_names() {
  std::vector<std::string> names;
  for (const auto& task : choice_tasks()) names.push_back(task.name);
  for (const auto& task : long_tasks()) names.push_back(task.name);
  return names;
}

TextTaskResult run_text_task(std::string_view name, nn::Model& model,
                             const text::Tokenizer& tokenizer, const TextTaskOptions& options,
                             const Report& report) {
  const Report tell = report ? report : [](int64_t, int64_t) {};
  if (const auto* task = find_long_task(name))
    return run_long(*task, model, tokenizer, options, tell);
  const auto* task = find_choice_task(name);
  TEMPERA_CHECK(task, "no task '", name, "'");
  return run_choices(*task, model, tokenizer, options, tell);
}

}  // namespace tempera::eval
