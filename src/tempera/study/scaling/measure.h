#pragma once

#include <memory>
#include <vector>

#include "tempera/nn/model.h"
#include "tempera/study/scaling/job.h"
#include "tempera/train/data_source.h"

namespace tempera::study::scaling {

// Rows of a text for models that are measured against each other: the documents of a row see each
// other, so that every row is as long as its model was trained for, and a step on a GPU is one
// graph.
std::shared_ptr<const data::Dataset> joined_rows(const train::DataSource& source, int64_t length,
                                                 uint64_t seed);

// The trained length, and two, four and eight times it, as far as the held-out text goes.
std::vector<int64_t> measured_lengths(const train::DataSource& source, int64_t context);

// Measures a trained model, on the device that it is on.
void measure(nn::Model& model, const StudyData& data, const train::DataSource& source,
             JobResult& result);

}  // namespace tempera::study::scaling
