#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tempera/serve/fields.h"
#include "tempera/serve/job.h"
#include "tempera/serve/served_model.h"

namespace tempera::serve {

// What completions and chats have in common.
struct TextRequest {
  JobRequest job;                 // without a prompt
  int64_t choices = 1;            // for each prompt
  std::vector<std::string> stop;  // texts before which an answer ends
  bool stream = false;
  bool stream_usage = false;
  bool seeded = false;
  int64_t max_tokens = 0;  // wanted; 0 with is_bounded false: as many as there is room for
  bool is_bounded = false;
};

TextRequest read_text_request(const RequestFields& fields, const ServedModel& model);

// The job for one prompt: as many tokens as were asked for and have room. Throws Refusal for a
// prompt without tokens or beyond the context.
JobRequest job_for(const TextRequest& request, std::vector<int64_t> prompt, int64_t choice,
                   const ServedModel& model, int64_t otherwise_tokens);

// Throws Refusal that names the field where the jobs' log-probabilities would take too much memory.
void check_scores(const std::vector<JobRequest>& jobs, const char* field);

// The prompts of a completion: a text, ids, or a list of either.
std::vector<std::vector<int64_t>> read_prompts(const RequestFields& fields,
                                               const ServedModel& model);

// A conversation as the model's template writes it, as ids.
std::vector<int64_t> read_conversation(const RequestFields& fields, const ServedModel& model);

}  // namespace tempera::serve
