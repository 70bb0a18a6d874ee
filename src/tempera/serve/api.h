#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tempera/http/router.h"
#include "tempera/serve/answer.h"
#include "tempera/serve/fields.h"
#include "tempera/serve/model_list.h"

namespace tempera::serve {

struct ApiOptions {
  std::vector<std::string> keys = {};  // of which a request needs one; none: it needs none
  double seconds = 600;                // for a request
};

// The routes that OpenAI's and vLLM's clients know, over models that have an engine each.
class Api {
 public:
  // The models must outlive it.
  Api(ModelList& models, ApiOptions options);

  http::Router routes();

 private:
  using Route = void (Api::*)(const http::Request&, http::Reply&);

  void check_key(const http::Request& request) const;
  ModelList::Served model_of(const RequestFields& fields);
  // Throws Refusal where the model is none.
  ModelList::Served decoder_of(const RequestFields& fields);
  Clock::time_point deadline() const;

  void complete(const http::Request& request, http::Reply& reply);
  void chat(const http::Request& request, http::Reply& reply);
  void embed(const http::Request& request, http::Reply& reply);
  Json model_entry(const ServedModel& model) const;
  void list_models(const http::Request& request, http::Reply& reply);
  void tell_model(const http::Request& request, http::Reply& reply);
  void tokenize(const http::Request& request, http::Reply& reply);
  void detokenize(const http::Request& request, http::Reply& reply);
  void tell_tokenizer(const http::Request& request, http::Reply& reply);
  void tell_metrics(const http::Request& request, http::Reply& reply);

  ModelList& models_;
  ApiOptions options_;
  int64_t created_;
};

// A name that no two answers share.
std::string new_id(const char* kind);
int64_t unix_seconds();

}  // namespace tempera::serve
