#include "tempera/eval/text_task.h"

#include "tempera/base/error.h"
#include "tempera/base/suggest.h"
#include "tempera/eval/choices.h"
#include "tempera/eval/likelihood.h"
#include "tempera/eval/passkey.h"

namespace tempera::eval {
namespace {

using Report = std::function<void(int64_t done, int64_t all)>;
constexpr std::string_view kPasskey = "passkey";

TextTaskResult run_choices(const ChoiceTask& task, nn::Model& model,
                           const text::Tokenizer& tokenizer, const TextTaskOptions& options,
                           const Report& report) {
  if (options.file.empty())
    throw UsageError(
        concat("--task ", task.name, " needs its examples: give a jsonl file with --file"));
  auto examples = read_examples(task, options.file, options.limit);
  const auto requests = requests_of(examples, tokenizer);
  const auto all = static_cast<int64_t>(requests.size());
  if (report) report(0, all);
  const auto likelihoods = score_requests(
      model, requests, {.max_length = model.config().context, .report = [&](int64_t done) {
                          if (report) report(done, all);
                        }});
  const auto scores =
      summarize(task, std::move(examples), likelihoods, static_cast<uint64_t>(options.seed));
  return {to_json(scores, options.samples), to_text(scores), to_figure(scores)};
}

TextTaskResult run_passkey(nn::Model& model, const text::Tokenizer& tokenizer,
                           const TextTaskOptions& options, const Report& report) {
  PasskeyOptions passkey{.hay = options.hay,
                         .lengths = options.lengths,
                         .depths = {},
                         .cases = options.cases,
                         .seed = static_cast<uint64_t>(options.seed)};
  for (const double percent : options.depths) passkey.depths.push_back(percent / 100);
  const auto all = passkey.all_cases();
  if (report) report(0, all);
  const Grid grid = score_passkey(model, tokenizer, passkey, [&](int64_t done) {
    if (report) report(done, all);
  });
  return {to_json(grid), to_text(grid), to_figure(grid)};
}

}  // namespace

void TextTaskOptions::declare(config::Options& options) {
  options.option("file", file, "a task's examples, one JSON object a line");
  options.option("limit", limit, config::range(0, 1e9), "examples of the file, at most; 0: all");
  options.option("lengths", lengths, config::range(16, 1 << 24),
                 "tokens of text of the tasks that hide something in it");
  options.option("depths", depths, config::range(0, 100), "where it is hidden, in % of the text");
  options.option("cases", cases, config::range(1, 1e6), "texts for each length and depth");
  options.option("samples", samples, "every example's texts and scores in the result");
  config::seed_option(options, seed);
}

bool is_text_task(std::string_view name) {
  return name == kPasskey || find_choice_task(name) != nullptr;
}

std::vector<std::string> text_task_names() {
  std::vector<std::string> names;
  for (const auto& task : choice_tasks()) names.push_back(task.name);
  names.emplace_back(kPasskey);
  return names;
}

TextTaskResult run_text_task(std::string_view name, nn::Model& model,
                             const text::Tokenizer& tokenizer, const TextTaskOptions& options,
                             const Report& report) {
  if (name == kPasskey) return run_passkey(model, tokenizer, options, report);
  if (const auto* task = find_choice_task(name))
    return run_choices(*task, model, tokenizer, options, report);
  const auto names = text_task_names();
  throw UsageError(concat("no task '", name, "'", did_you_mean(name, names)));
}

}  // namespace tempera::eval
