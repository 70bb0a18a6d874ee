#include <algorithm>
#include <span>

#include "tempera/base/base64.h"
#include "tempera/base/error.h"
#include "tempera/models/device.h"
#include "tempera/ops/torch.h"
#include "tempera/serve/api.h"
#include "tempera/serve/turns.h"

namespace tempera::serve {
namespace {

using Ids = std::vector<int32_t>;

// As OpenAI's.
constexpr size_t kMostInputs = 2048;
// Between two looks at the client and at the models that wait.
constexpr size_t kTogether = 16;

Ids ids_of(const Json& input, const ServedModel& model) {
  Ids ids;
  if (input.is_string()) {
    model.tokenizer->encode(input.get<std::string>(), ids, {.add_special = true});
  } else if (input.is_array()) {
    for (const auto& id : input)
      ids.push_back(static_cast<int32_t>(token_id("input", id, model.vocabulary())));
  } else {
    refuse_field("input",
                 "a list with " + kind_of(input) + " given, texts or lists of ids expected");
  }
  if (ids.empty()) refuse_field("input", "a text without tokens given");
  const auto count = static_cast<int64_t>(ids.size());
  if (model.context() > 0 && count > model.context())
    refuse_field("input", concat("a text of ", count, " tokens given; the model reads at most ",
                                 model.context()));
  return ids;
}

std::vector<Ids> read_inputs(const RequestFields& fields, const ServedModel& model) {
  const Json* given = fields.find("input");
  if (!given) refuse_field("input", "missing: a text, ids of tokens, or a list of either expected");
  const bool one =
      given->is_string() || (given->is_array() && !given->empty() && given->front().is_number());
  if (one) return {ids_of(*given, model)};
  if (!given->is_array() || given->empty() || given->size() > kMostInputs)
    refuse_field("input",
                 concat(kind_of(*given), " given, a text, ids of tokens, or a list of 1 to ",
                        kMostInputs, " of either expected"));
  std::vector<Ids> inputs;
  for (const auto& input : *given) inputs.push_back(ids_of(input, model));
  return inputs;
}

bool wants_base64(const RequestFields& fields) {
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    refuse_field("encoding_format", concat("\"", format, "\" given, float or base64 expected"));
  return format == "base64";
}

Json vector_json(const torch::Tensor& vector, bool base64) {
  const float* const first = vector.const_data_ptr<float>();
  const std::span numbers(first, static_cast<size_t>(vector.numel()));
  if (base64) {
    const auto bytes = std::as_bytes(numbers);
    return encode_base64({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  }
  Json list = Json::array();
  for (const float number : numbers) list.push_back(number);
  return list;
}

}  // namespace

void Api::embed(const http::Request& request, http::Reply& reply) {
  const RequestFields fields(request.body);
  const auto served = model_of(fields);
  const ServedModel& model = *served;
  if (!model.embed)
    throw http::Refusal(400,
                        concat("the model \"", model.name,
                               "\" is a decoder, which writes text; "
                               "vectors come from encoders"),
                        "model");
  const bool base64 = wants_base64(fields);
  if (const auto width = fields.integer("dimensions", 1, model.model->config().width);
      width && *width != model.model->config().width)
    refuse_field("dimensions", concat("the model's vectors have ", model.model->config().width,
                                      " numbers and are not cut"));
  const auto inputs = read_inputs(fields, model);
  const auto end = deadline();
  models::use_threads(model.threads);
  Json data = Json::array();
  int64_t tokens = 0;
  for (size_t first = 0; first < inputs.size(); first += kTogether) {
    if (reply.is_client_gone()) throw http::Refusal(503, "the client has gone");
    if (Clock::now() >= end) throw http::Refusal(504, "the request took too long");
    const size_t last = std::min(inputs.size(), first + kTogether);
    const std::vector<Ids> some(inputs.begin() + static_cast<std::ptrdiff_t>(first),
                                inputs.begin() + static_cast<std::ptrdiff_t>(last));
    std::vector<torch::Tensor> vectors;
    {
      const std::lock_guard computing(compute_turns());
      vectors = models::embed_ids(*model.model, some, model.tokenizer->special().pad.value_or(0),
                                  *model.embed);
    }
    for (size_t i = 0; i < some.size(); ++i) {
      tokens += std::ssize(some[i]);
      data.push_back({{"object", "embedding"},
                      {"index", first + i},
                      {"embedding", vector_json(vectors[i], base64)}});
    }
  }
  reply.send({.body = to_text({{"object", "list"},
                               {"data", std::move(data)},
                               {"model", model.name},
                               {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}})});
}

}  // namespace tempera::serve
