#include "tempera/config/common.h"

namespace tempera::config {

void device_option(Options& options, Device& device) {
  static const EnumChoices<Device> kNames{
      {{"auto", Device::kAuto}, {"cpu", Device::kCpu}, {"cuda", Device::kCuda}}};
  options.option("device", device, kNames, "where to compute; auto: a GPU if there is one",
                 {.local = true, .section = Section::kComputing});
}

void dtype_option(Options& options, Dtype& dtype) {
  static const EnumChoices<Dtype> kNames{{{"fp32", Dtype::kFloat32}, {"bf16", Dtype::kBfloat16}}};
  options.option("dtype", dtype, kNames, "precision of the computation",
                 {.section = Section::kComputing});
}

void cache_dtype_option(Options& options, CacheDtype& dtype) {
  static const EnumChoices<CacheDtype> kNames{{{"auto", CacheDtype::kAuto},
                                               {"fp32", CacheDtype::kFloat32},
                                               {"bf16", CacheDtype::kBfloat16},
                                               {"int8", CacheDtype::kInt8}}};
  options.option("cache-dtype", dtype, kNames, "precision of the KV cache; auto: as --dtype",
                 {.section = Section::kComputing});
}

void threads_option(Options& options, int64_t& threads) {
  options.option("threads", threads, range(0, 4096), "CPU threads; 0: one per core",
                 {.local = true, .section = Section::kComputing});
}

void seed_option(Options& options, int64_t& seed) {
  options.option("seed", seed, at_least(0), "random seed", {.section = Section::kComputing});
}

void out_option(Options& options, std::string& folder) {
  options.option("out", folder, "output folder: new or empty, or that of a run to continue",
                 {.local = true, .section = Section::kOutput});
}

void fresh_option(Options& options, bool& fresh) {
  options.option("fresh", fresh,
                 "start over; results already in the output folder move to before-1, before-2, ...",
                 {.once = true, .section = Section::kOutput});
}

void json_option(Options& options, bool& json) {
  options.option("json", json, "print the result as one JSON document",
                 {.local = true, .section = Section::kOutput});
}

}  // namespace tempera::config
