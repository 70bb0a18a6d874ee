#include "tempera/data/dataset.h"

#include "tempera/base/error.h"

namespace tempera::data {

void check_fits(const Dataset& dataset, const ModelLimits& model) {
  TEMPERA_CHECK(
      dataset.vocabulary() <= model.vocabulary, "vocabulary mismatch: the data '", dataset.name(),
      "' has token ids below ", dataset.vocabulary(), ", the model has only ", model.vocabulary,
      " embeddings; use the model's own tokenizer for the data, or a model with at least ",
      dataset.vocabulary());
  TEMPERA_CHECK(dataset.classes() <= model.classes, "vocabulary mismatch: the data '",
                dataset.name(), "' asks for ", dataset.classes(),
                " classes, the model's output has ", model.classes, "; use a model with at least ",
                dataset.classes(), " outputs");
  TEMPERA_CHECK(model.max_length == 0 || dataset.train_length() <= model.max_length, "the data '",
                dataset.name(), "' has rows of ", dataset.train_length(),
                " tokens, the model takes at most ", model.max_length,
                "; shorten the rows or use a model with a longer context");
}

void check_request(const BatchRequest& request) {
  TEMPERA_CHECK(request.first_row >= 0 && request.rows >= 1 && request.rows <= request.batch_rows &&
                    request.first_row <= request.batch_rows - request.rows,
                "rows ", request.first_row, " to ", request.first_row + request.rows,
                " of a batch of ", request.batch_rows,
                "; expected at least one row, inside the batch");
}

void check_held_out(const Dataset& dataset, size_t set, int64_t first_row, int64_t rows) {
  const auto& sets = dataset.held_out_sets();
  TEMPERA_CHECK(set < sets.size(), "held-out set ", set, " of '", dataset.name(), "', which has ",
                sets.size());
  TEMPERA_CHECK(
      first_row >= 0 && rows >= 1 && rows <= sets[set].rows && first_row <= sets[set].rows - rows,
      "rows ", first_row, " to ", first_row + rows, " of held-out set '", sets[set].label,
      "', which has ", sets[set].rows);
}

}  // namespace tempera::data
