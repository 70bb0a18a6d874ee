#include "tempera/serve/api.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "tempera/serve/page.h"

namespace tempera::serve {
namespace {

constexpr std::string_view kModels = "/v1/models/";

// Takes as long for a wrong key as for a right one.
bool is_same(std::string_view given, std::string_view key) {
  size_t difference = given.size() ^ key.size();
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<size_t>(static_cast<unsigned char>(given[i]) ^
                                      static_cast<unsigned char>(key[i % key.size()]));
  return difference == 0;
}

Json optional_piece(const text::Tokenizer& tokenizer, const std::optional<int32_t>& id) {
  return id ? Json(tokenizer.piece(*id)) : Json();
}

}  // namespace

std::string new_id(const char* kind) {
  static std::atomic<int64_t> last = 0;
  static const int64_t start = std::chrono::system_clock::now().time_since_epoch().count();
  return concat(kind, "-", start, "-", ++last);
}

int64_t unix_seconds() {
  using std::chrono::seconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<seconds>(now).count();
}

Api::Api(ModelList& models, ApiOptions options)
    : models_(models), options_(std::move(options)), created_(unix_seconds()) {}

http::Router Api::routes() {
  http::Router router;
  const auto add = [&](const char* method, const char* path, Route route) {
    router.add(method, path, [this, route](const http::Request& request, http::Reply& reply) {
      check_key(request);
      (this->*route)(request, reply);
    });
  };
  add("POST", "/v1/completions", &Api::complete);
  add("POST", "/v1/chat/completions", &Api::chat);
  add("POST", "/v1/embeddings", &Api::embed);
  add("GET", "/v1/models", &Api::list_models);
  add("GET", "/v1/models/*", &Api::tell_model);
  add("POST", "/tokenize", &Api::tokenize);
  add("POST", "/detokenize", &Api::detokenize);
  add("GET", "/tokenizer_info", &Api::tell_tokenizer);
  add("GET", "/metrics", &Api::tell_metrics);
  router.add("GET", "/health", [](const http::Request&, http::Reply& reply) {
    reply.send({.body = "{\"status\":\"ok\"}"});
  });
  add_page(router);
  return router;
}

void Api::check_key(const http::Request& request) const {
  if (options_.keys.empty()) return;
  constexpr std::string_view kBearer = "bearer ";  // in any case
  const std::string* header = request.header("authorization");
  const bool bears = header && http::lower_case(*header).starts_with(kBearer);
  const std::string_view given =
      bears ? std::string_view(*header).substr(kBearer.size()) : std::string_view();
  bool known = false;
  for (const auto& key : options_.keys) known = is_same(given, key) || known;
  if (!known)
    throw http::Refusal(401, "an API key is needed: \"Authorization: Bearer KEY\"", {},
                        {{"WWW-Authenticate", "Bearer"}});
}

ModelList::Served Api::model_of(const RequestFields& fields) {
  return models_.find(fields.text("model"));
}

ModelList::Served Api::decoder_of(const RequestFields& fields) {
  auto served = model_of(fields);
  if (!served->engine)
    throw http::Refusal(
        400, concat("the model \"", served->name, "\" writes no text; use /v1/embeddings"),
        "model");
  return served;
}

Clock::time_point Api::deadline() const {
  return Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(options_.seconds * 1000));
}

Json Api::model_entry(const ServedModel& model) const {
  return {{"id", model.name},
          {"object", "model"},
          {"created", created_},
          {"owned_by", "tempera"},
          {"max_model_len", model.context()}};
}

void Api::list_models(const http::Request& /*request*/, http::Reply& reply) {
  Json list = Json::array();
  for (const auto& model : models_.all()) list.push_back(model_entry(*model));
  reply.send({.body = to_text({{"object", "list"}, {"data", std::move(list)}})});
}

// Only of those that are there: a question makes no other temperature.
void Api::tell_model(const http::Request& request, http::Reply& reply) {
  const std::string name = request.path.substr(kModels.size());
  for (const auto& model : models_.all())
    if (model->name == name) return reply.send({.body = to_text(model_entry(*model))});
  throw http::Refusal(404, concat("there is no model \"", name, "\""), "model");
}

void Api::tokenize(const http::Request& request, http::Reply& reply) {
  const RequestFields fields(request.body);
  const auto served = model_of(fields);
  const ServedModel& model = *served;
  std::vector<int64_t> ids;
  if (fields.find("messages")) {
    ids = read_conversation(fields, model);
  } else {
    const auto prompt = fields.text("prompt");
    if (!prompt) refuse_field("prompt", "missing: a text expected");
    std::vector<int32_t> encoded;
    model.tokenizer->encode(
        *prompt, encoded,
        {.add_special = fields.flag("add_special_tokens", true), .parse_special = true});
    ids.assign(encoded.begin(), encoded.end());
  }
  reply.send({.body = to_text(
                  {{"count", ids.size()}, {"max_model_len", model.context()}, {"tokens", ids}})});
}

void Api::detokenize(const http::Request& request, http::Reply& reply) {
  const RequestFields fields(request.body);
  const auto served = model_of(fields);
  const ServedModel& model = *served;
  const Json* given = fields.find("tokens");
  if (!given || !given->is_array()) refuse_field("tokens", "a list of ids expected");
  std::vector<int32_t> ids;
  for (const auto& id : *given)
    ids.push_back(static_cast<int32_t>(token_id("tokens", id, model.tokenizer->vocabulary())));
  std::string text;
  model.tokenizer->decode(ids, text, text::SpecialText::kShow);
  reply.send({.body = to_text({{"prompt", text}})});
}

void Api::tell_tokenizer(const http::Request& /*request*/, http::Reply& reply) {
  const ServedModel& model = models_.first();
  const text::Tokenizer& tokenizer = *model.tokenizer;
  const auto special = tokenizer.special();
  reply.send(
      {.body = to_text({{"tokenizer_class", tokenizer.name()},
                        {"vocab_size", tokenizer.vocabulary()},
                        {"bos_token", optional_piece(tokenizer, special.begin_of_text)},
                        {"eos_token", optional_piece(tokenizer, special.end_of_text)},
                        {"pad_token", optional_piece(tokenizer, special.pad)},
                        {"unk_token", optional_piece(tokenizer, special.unknown)},
                        {"model_max_length", model.context()},
                        {"chat_template", model.chat ? Json(model.chat->source()) : Json()}})});
}

void Api::tell_metrics(const http::Request& /*request*/, http::Reply& reply) {
  const auto served = models_.all();
  std::vector<ModelMetrics> all;
  for (const auto& model : served)
    if (model->engine) all.push_back({model->name, model->engine->state(), model->metrics.get()});
  reply.send({.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_text(all)});
}

}  // namespace tempera::serve
