#include "tempera/serve/request.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>

#include "tempera/base/error.h"
#include "tempera/generate/text.h"
#include "tempera/http/message.h"

namespace tempera::serve {
namespace {

constexpr int64_t kMost = 1'000'000'000;
constexpr int64_t kMostChoices = 128;
// Each takes 150 to 350 bytes until it is sent.
constexpr int64_t kMostScores = int64_t{1} << 22;
constexpr size_t kMostPrompts = 4096, kMostStops = 16, kMostUser = 256;

void read_sampling(const RequestFields& fields, JobRequest& job) {
  job.sampler.temperature = fields.number("temperature", 1, 0, 100);
  job.sampler.top_p = fields.number("top_p", 1, 0, 1);
  // vLLM's -1 is also "all".
  job.sampler.top_k = std::max<int64_t>(fields.integer("top_k", -1, kMost).value_or(0), 0);
  if (job.sampler.top_p == 0) {  // the likeliest alone
    job.sampler.top_p = 1;
    job.sampler.top_k = 1;
  }
  job.sampler.min_p = fields.number("min_p", 0, 0, 1);
  job.sampler.repetition_penalty = fields.number("repetition_penalty", 1, 0.01, 100);
  job.presence_penalty = fields.number("presence_penalty", 0, -2, 2);
  job.frequency_penalty = fields.number("frequency_penalty", 0, -2, 2);
}

// Every job carries it, and the engine compares it for all that wait.
std::string read_user(const RequestFields& fields) {
  std::string user = fields.text("user").value_or("");
  if (user.size() > kMostUser)
    refuse_field("user", concat(user.size(), " bytes given, at most ", kMostUser, " are taken"));
  return user;
}

std::shared_ptr<const std::map<int64_t, double>> read_bias(const RequestFields& fields,
                                                           int64_t vocabulary) {
  const Json* given = fields.object("logit_bias");
  if (!given || given->empty()) return nullptr;
  std::map<int64_t, double> bias;
  for (const auto& [name, value] : given->items()) {
    int64_t id = -1;
    const char* const end = name.data() + name.size();
    if (std::from_chars(name.data(), end, id).ptr != end || id < 0 || id >= vocabulary)
      refuse_field("logit_bias",
                   concat("\"", name, "\" is not the id of a token below ", vocabulary));
    if (!value.is_number() || !(value >= -100 && value <= 100))
      refuse_field("logit_bias", kind_of(value) + " given, numbers from -100 to 100 expected");
    bias[id] = value.get<double>();
  }
  return std::make_shared<const std::map<int64_t, double>>(std::move(bias));
}

void refuse_what_is_missing(const RequestFields& fields) {
  if (fields.find("suffix"))
    refuse_field("suffix", "text is written behind a prompt only, not in front of a suffix");
  if (const auto best = fields.integer("best_of", 1, kMost);
      best && *best != fields.integer("n", 1, kMost).value_or(1))
    refuse_field("best_of", "all n choices are given; ask for n and choose by their logprobs");
}

}  // namespace

TextRequest read_text_request(const RequestFields& fields, const ServedModel& model) {
  refuse_what_is_missing(fields);
  TextRequest request;
  read_sampling(fields, request.job);
  request.job.bias = read_bias(fields, model.vocabulary());
  request.job.client = read_user(fields);
  if (!fields.flag("ignore_eos")) request.job.stop_tokens = model.end_tokens;
  request.choices = fields.integer("n", 1, kMostChoices).value_or(1);
  request.stop = fields.texts("stop");
  if (request.stop.size() > kMostStops)
    refuse_field("stop",
                 concat(request.stop.size(), " texts given, at most ", kMostStops, " are read"));
  // An empty text would end every answer at once; clients mean "none".
  std::erase(request.stop, "");
  request.stream = fields.flag("stream");
  if (const Json* options = fields.object("stream_options")) {
    const auto usage = options->find("include_usage");
    request.stream_usage = usage != options->end() && usage->is_boolean() && usage->get<bool>();
  }
  const auto seed = fields.integer("seed", std::numeric_limits<int64_t>::min(),
                                   std::numeric_limits<int64_t>::max());
  request.seeded = seed.has_value();
  request.job.sampler.seed = seed.value_or(static_cast<int64_t>(std::random_device()()));
  for (const char* name : {"max_tokens", "max_completion_tokens"})
    if (const auto most = fields.integer(name, 0, kMost)) {
      request.max_tokens = *most;
      request.is_bounded = true;
    }
  return request;
}

JobRequest job_for(const TextRequest& request, std::vector<int64_t> prompt, int64_t choice,
                   const ServedModel& model, int64_t otherwise_tokens) {
  const int64_t context = model.engine->context();
  const auto length = static_cast<int64_t>(prompt.size());
  if (length == 0) throw http::Refusal(400, "the prompt has no tokens");
  if (length > context)
    throw http::Refusal(400, concat("the prompt has ", length, " tokens; the model's context is ",
                                    context, " with the answer"));
  JobRequest job = request.job;
  // The last token of an answer needs no place: nothing comes behind it.
  const int64_t room = context - length + 1;
  job.max_tokens = std::min(room, request.is_bounded ? request.max_tokens : otherwise_tokens);
  job.prompt = std::move(prompt);
  // Choices differ, and each is the same again.
  job.sampler.seed =
      static_cast<int64_t>(static_cast<uint64_t>(job.sampler.seed) + static_cast<uint64_t>(choice));
  return job;
}

void check_scores(const std::vector<JobRequest>& jobs, const char* field) {
  int64_t scores = 0;
  for (const auto& job : jobs) {
    if (!job.top) continue;
    const int64_t read = job.prompt_scores ? static_cast<int64_t>(job.prompt.size()) : 0;
    scores += (read + job.max_tokens) * (*job.top + 1);
  }
  if (scores > kMostScores)
    refuse_field(field, concat("up to ", scores, " log-probabilities wanted; at most ", kMostScores,
                               " are given in a request: ask for fewer, or for fewer tokens"));
}

std::vector<std::vector<int64_t>> read_prompts(const RequestFields& fields,
                                               const ServedModel& model) {
  const Json* given = fields.find("prompt");
  if (!given)
    refuse_field("prompt", "missing: a text, ids of tokens, or a list of either expected");
  const bool specials = fields.flag("add_special_tokens", true);
  std::vector<std::vector<int64_t>> prompts;
  const auto add_text = [&](const std::string& text) {
    // Clients write whole conversations here, special tokens spelled out.
    prompts.push_back(generate::encode_prompt(*model.tokenizer, text,
                                              {.add_special = specials, .parse_special = true}));
  };
  const auto add_ids = [&](const Json& list) {
    auto& ids = prompts.emplace_back();
    for (const auto& id : list) ids.push_back(token_id("prompt", id, model.vocabulary()));
  };
  if (given->is_string()) {
    add_text(given->get<std::string>());
  } else if (given->is_array() && !given->empty() && given->front().is_number()) {
    add_ids(*given);
  } else if (given->is_array() && !given->empty() && given->size() <= kMostPrompts) {
    for (const auto& item : *given) {
      if (item.is_string())
        add_text(item.get<std::string>());
      else if (item.is_array())
        add_ids(item);
      else
        refuse_field("prompt",
                     "a list with " + kind_of(item) + " given, texts or lists of ids expected");
    }
  } else {
    refuse_field("prompt",
                 concat(kind_of(*given), " given, a text, ids of tokens, or a list of 1 to ",
                        kMostPrompts, " of either expected"));
  }
  return prompts;
}

std::vector<int64_t> read_conversation(const RequestFields& fields, const ServedModel& model) {
  const Json* given = fields.find("messages");
  if (!given || !given->is_array() || given->empty())
    refuse_field("messages", "a list with at least one message expected");
  if (!model.chat)
    throw http::Refusal(
        400, concat("the model \"", model.name, "\" has no chat template; use /v1/completions"));
  std::vector<text::ChatMessage> messages;
  for (Json message : *given) {
    if (message.is_object() && message.contains("content") && message["content"].is_array()) {
      // Parts of a message, of which texts are read.
      std::string all;
      for (const auto& part : message["content"]) {
        if (!part.is_object() || part.value("type", Json()) != "text" || !part.contains("text") ||
            !part["text"].is_string())
          refuse_field("messages", "a part of a message that is no text given");
        all += part["text"].get<std::string>();
      }
      message["content"] = all;
    }
    try {
      messages.push_back(text::ChatMessage::from_json(message, "messages"));
    } catch (const Error& error) {
      throw http::Refusal(400, error.what(), "messages");
    }
  }
  text::ChatOptions options{.add_generation_prompt = fields.flag("add_generation_prompt", true)};
  if (const Json* tools = fields.find("tools")) options.tools = *tools;
  if (const Json* variables = fields.object("chat_template_kwargs")) options.variables = *variables;
  std::vector<int32_t> ids;
  try {
    model.tokenizer->encode(model.chat->render(messages, options), ids, {.parse_special = true});
  } catch (const Error& error) {
    throw http::Refusal(400, error.what(), "messages");
  }
  return {ids.begin(), ids.end()};
}

}  // namespace tempera::serve
