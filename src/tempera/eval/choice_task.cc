#include "tempera/eval/choice_task.h"

#include <algorithm>
#include <cctype>

#include "tempera/base/error.h"

namespace tempera::eval {
namespace {

constexpr std::string_view kBlank = " \t\n\v\f\r";

int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::string stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(kBlank) - first + 1));
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// As Python's str.capitalize, of ASCII letters.
std::string capitalized(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    text[i] = static_cast<char>(i == 0 ? std::toupper(c) : std::tolower(c));
  }
  return text;
}

// The choices continue one context, behind a blank.
ChoiceExample choose(const JsonLine& fields, const std::string& context,
                     const std::vector<std::string>& choices, size_t gold) {
  if (choices.empty()) fields.fail("no choices given");
  ChoiceExample example{.contexts = std::vector<std::string>(choices.size(), context),
                        .continuations = {},
                        .characters = {},
                        .gold = gold};
  for (const auto& choice : choices) {
    if (choice.empty()) fields.fail("one of the choices is empty");
    example.continuations.push_back(" " + choice);
    example.characters.push_back(count_characters(choice));
  }
  return example;
}

// The choices are in the contexts, and what is scored is the same behind all: partial scoring.
ChoiceExample complete(const JsonLine& fields, const std::vector<std::string>& contexts,
                       const std::string& continuation, size_t gold) {
  if (contexts.empty()) fields.fail("no choices given");
  ChoiceExample example{
      .contexts = contexts,
      .continuations = std::vector<std::string>(contexts.size(), " " + continuation),
      .characters = {},
      .gold = gold};
  for (const auto& context : contexts) example.characters.push_back(count_characters(context));
  return example;
}

size_t gold_of(const JsonLine& fields, const std::vector<std::string>& choices) {
  return fields.index("gold", choices.size());
}

ChoiceExample read_ready(const JsonLine& fields) {
  const auto choices = fields.texts("choices");
  return choose(fields, fields.text("query"), choices, gold_of(fields, choices));
}

ChoiceExample read_ready_answer(const JsonLine& fields) {
  const auto choices = fields.texts("choices");
  std::string query = fields.text("query");
  query.erase(query.find_last_not_of('\n') + 1);
  return choose(fields, query + "\nAnswer:", choices, gold_of(fields, choices));
}

ChoiceExample read_ready_boolq(const JsonLine& fields) {
  constexpr std::string_view kPassage = "Passage: ";
  const auto choices = fields.texts("choices");
  std::string query = fields.text("query");
  if (query.starts_with(kPassage)) query.erase(0, kPassage.size());
  return choose(fields, query + "\nAnswer:", choices, gold_of(fields, choices));
}

ChoiceExample read_ready_contexts(const JsonLine& fields) {
  const auto contexts = fields.texts("context_options");
  return complete(fields, contexts, fields.text("continuation"), gold_of(fields, contexts));
}

// The place of the answer's letter among the labels.
size_t labelled(const JsonLine& fields, const std::vector<std::string>& labels) {
  const std::string key = stripped(fields.text("answerKey"));
  const auto found = std::ranges::find(labels, key);
  if (found == labels.end())
    fields.fail("\"answerKey\" is \"", key, "\", which is no choice's label");
  return static_cast<size_t>(found - labels.begin());
}

ChoiceExample read_labelled(const JsonLine& fields, const std::string& context) {
  const auto choices = fields.texts("choices.text");
  const auto labels = fields.texts("choices.label");
  if (choices.size() != labels.size())
    fields.fail(choices.size(), " choices with ", labels.size(), " labels given");
  return choose(fields, context, choices, labelled(fields, labels));
}

ChoiceExample read_arc(const JsonLine& fields) {
  return read_labelled(fields, "Question: " + fields.text("question") + "\nAnswer:");
}

ChoiceExample read_openbookqa(const JsonLine& fields) {
  return read_labelled(fields, fields.text("question_stem"));
}

ChoiceExample read_piqa(const JsonLine& fields) {
  return choose(fields, "Question: " + fields.text("goal") + "\nAnswer:",
                {fields.text("sol1"), fields.text("sol2")}, fields.index("label", 2));
}

ChoiceExample read_hellaswag(const JsonLine& fields) {
  std::vector<std::string> endings;
  for (auto& ending : fields.texts("endings")) endings.push_back(clean_hellaswag(ending));
  return choose(fields,
                clean_hellaswag(fields.text("activity_label") + ": " + fields.text("ctx_a") + " " +
                                capitalized(fields.text("ctx_b"))),
                endings, fields.index("label", endings.size()));
}

ChoiceExample read_winogrande(const JsonLine& fields) {
  const std::string& sentence = fields.text("sentence");
  const size_t gap = sentence.find('_');
  if (gap == std::string::npos) fields.fail("\"sentence\" has no gap '_'");
  const int64_t answer = fields.number("answer");
  if (answer != 1 && answer != 2) fields.fail("\"answer\" is ", answer, ", not 1 or 2");
  const std::string begin = sentence.substr(0, gap);
  return complete(fields, {begin + fields.text("option1"), begin + fields.text("option2")},
                  stripped(sentence.substr(gap + 1)), static_cast<size_t>(answer - 1));
}

ChoiceExample ask_boolq(const JsonLine& fields, const char* gold) {
  return choose(fields,
                fields.text("passage") + "\nQuestion: " + fields.text("question") + "?\nAnswer:",
                {"no", "yes"}, fields.index(gold, 2));
}

ChoiceExample read_boolq(const JsonLine& fields) { return ask_boolq(fields, "label"); }
ChoiceExample read_boolq_answer(const JsonLine& fields) { return ask_boolq(fields, "answer"); }

// Each choice has a blank of its own beside the one in front of every choice: lm-eval's text.
ChoiceExample read_copa(const JsonLine& fields) {
  std::string premise = stripped(fields.text("premise"));
  if (!premise.empty()) premise.pop_back();  // the full stop
  const auto& kind = fields.text("question");
  if (kind != "cause" && kind != "effect")
    fields.fail("\"question\" is \"", kind, "\", not \"cause\" or \"effect\"");
  std::vector<std::string> choices;
  for (const char* name : {"choice1", "choice2"}) {
    std::string choice = fields.text(name);
    if (choice.empty()) fields.fail("\"", name, "\" is empty");
    choice[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(choice[0])));
    choices.push_back(" " + choice);
  }
  return choose(fields, premise + (kind == "cause" ? " because" : " therefore"), choices,
                fields.index("label", 2));
}

ChoiceExample read_lambada(const JsonLine& fields) {
  const auto& text = fields.text("text");
  const size_t blank = text.rfind(' ');
  if (blank == std::string::npos || blank + 1 == text.size())
    fields.fail("\"text\" has no last word behind a blank");
  return choose(fields, text.substr(0, blank), {text.substr(blank + 1)}, 0);
}

const std::vector<std::string> kReady = {"query", "choices", "gold"};
const std::vector<std::string> kReadyContexts = {"context_options", "continuation", "gold"};
const std::vector<std::string> kLabelled = {"question", "choices", "answerKey"};

std::vector<ChoiceTask> make_choice_tasks() {
  const ChoiceForm ready{kReady, read_ready}, answer{kReady, read_ready_answer};
  const ChoiceForm contexts{kReadyContexts, read_ready_contexts}, arc{kLabelled, read_arc};
  return {
      {"arc_challenge", "school questions that are hard to look up", true, false, {arc, answer}},
      {"arc_easy", "school questions", true, false, {arc, answer}},
      {"boolq",
       "yes or no about a passage",
       false,
       false,
       {{{"passage", "question", "label"}, read_boolq},
        {{"passage", "question", "answer"}, read_boolq_answer},
        {kReady, read_ready_boolq}}},
      {"choices", "any questions with choices", true, false, {ready, contexts}},
      {"copa",
       "cause or effect",
       false,
       false,
       {{{"premise", "choice1", "choice2", "question", "label"}, read_copa}, ready}},
      {"hellaswag",
       "how a story goes on",
       true,
       false,
       {{{"activity_label", "ctx_a", "ctx_b", "endings", "label"}, read_hellaswag}, ready}},
      {"lambada", "the last word of a passage", false, true, {{{"text"}, read_lambada}}},
      {"openbookqa",
       "elementary science",
       true,
       false,
       {{{"question_stem", "choices", "answerKey"}, read_openbookqa}, ready}},
      {"piqa",
       "how things are done",
       true,
       false,
       {{{"goal", "sol1", "sol2", "label"}, read_piqa}, answer}},
      {"winograd", "who a pronoun means", false, false, {contexts}},
      {"winogrande",
       "who a gap means",
       false,
       false,
       {{{"sentence", "option1", "option2", "answer"}, read_winogrande}, contexts}},
  };
}

const ChoiceForm& form_of(const ChoiceTask& task, const JsonLine& fields) {
  std::string known, missing;
  for (const auto& form : task.forms) {
    std::string list, lacks;
    for (const auto& field : form.fields) {
      list += (list.empty() ? "" : ", ") + field;
      if (!fields.has(field)) lacks += (lacks.empty() ? "" : ", ") + field;
    }
    if (lacks.empty()) return form;
    known += (known.empty() ? "" : ", or ") + list;
    if (missing.empty() || lacks.size() < missing.size()) missing = lacks;
  }
  fields.fail("no ", missing, "; it has ", fields.names(), ", and ", task.name, " needs ", known);
}

}  // namespace

std::string clean_hellaswag(std::string text) {
  text = stripped(text);
  replace_all(text, " [title]", ". ");
  // Brackets and what they hold, within a line.
  for (size_t open = text.find('['); open != std::string::npos; open = text.find('[', open)) {
    const size_t close = text.find_first_of("]\n", open);
    if (close == std::string::npos || text[close] == '\n')
      ++open;
    else
      text.erase(open, close - open + 1);
  }
  replace_all(text, "  ", " ");
  return text;
}

const std::vector<ChoiceTask>& choice_tasks() {
  static const std::vector<ChoiceTask> tasks = make_choice_tasks();
  return tasks;
}

const ChoiceTask* find_choice_task(std::string_view name) {
  const auto found = std::ranges::find(choice_tasks(), name, &ChoiceTask::name);
  return found == choice_tasks().end() ? nullptr : &*found;
}

std::vector<ChoiceExample> read_examples(const ChoiceTask& task, const std::filesystem::path& file,
                                         int64_t limit) {
  std::vector<ChoiceExample> examples;
  for_each_line(file, limit, [&](const JsonLine& fields) {
    examples.push_back(form_of(task, fields).read(fields));
  });
  return examples;
}

}  // namespace tempera::eval
