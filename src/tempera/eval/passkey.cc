#include "tempera/eval/passkey.h"

#include "tempera/eval/long_score.h"

namespace tempera::eval {

Grid score_passkey(nn::Model& model, const text::Tokenizer& tokenizer,
                   const PasskeyOptions& options,
                   const std::function<void(int64_t cases)>& report) {
  const LongTaskOptions task{.hay = options.hay,
                             .lengths = options.lengths,
                             .depths = options.depths,
                             .cases = options.cases,
                             .digits = options.digits,
                             .seed = options.seed};
  return score_long_task(model, tokenizer, *find_long_task("passkey"), task, report);
}

}  // namespace tempera::eval
