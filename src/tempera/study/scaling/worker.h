#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tempera/study/scaling/job.h"
#include "tempera/study/scaling/workers.h"
#include "tempera/train/data_source.h"
#include "tempera/train/options.h"

// One process of a study: trains and measures the models that it is told to. Each line is a JSON
// object.
//
//   told    {"job": ..., "micro_batch": rows, "save_every": steps}
//           {"probe": a job}
//   says    {"hello": {"device", "memory"}}             first
//           {"at": steps, "share": ...}                 while it trains
//           {"note": text}                              for a person
//           {"done": outcome} {"stopped": true}         the job's result is in its file; or it is
//                                                       saved, after a signal
//           {"seconds_per_token": ...}                  of a probe
//           {"failed": text}                            the study cannot go on
namespace tempera::study::scaling {

// Whose folders they are, as a person types it.
inline constexpr const char* kVerb = "study scaling";

struct WorkerSetup {
  std::filesystem::path jobs;  // the folder of all jobs
  StudyData data;
  const train::DataSource* source = nullptr;
  config::Device device = config::Device::kAuto;
  bool keep_models = false;
  size_t number = 0;
};

std::filesystem::path result_file(const std::filesystem::path& jobs, const Job& job);
std::filesystem::path job_folder(const std::filesystem::path& jobs, const Job& job);

// How a job is trained.
train::TrainOptions training_of(const Job& job, config::Device device);

void serve(const WorkerSetup& setup, LineSocket& parent);

}  // namespace tempera::study::scaling
