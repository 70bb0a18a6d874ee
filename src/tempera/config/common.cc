#include "tempera/config/common.h"

namespace tempera::config {

void device_option(Options& options, Device& device) {
  static const EnumChoices<Device> kNames{
      {{"auto", Device::kAuto}, {"cpu", Device::kCpu}, {"cuda", Device::kCuda}}};
  options.option("device", device, kNames, "where to compute; auto: a GPU if there is one",
                 {.local = true});
}

void dtype_option(Options& options, Dtype& dtype) {
  static const EnumChoices<Dtype> kNames{{{"fp32", Dtype::kFloat32}, {"bf16", Dtype::kBfloat16}}};
  options.option("dtype", dtype, kNames, "number format of the computation");
}

void threads_option(Options& options, int64_t& threads) {
  options.option("threads", threads, range(0, 4096), "threads; 0: one for each core",
                 {.local = true});
}

void seed_option(Options& options, int64_t& seed) {
  options.option("seed", seed, at_least(0), "seed of every random number");
}

void out_option(Options& options, std::string& folder) {
  options.option("out", folder, "folder for the results: new, empty, or the same run's",
                 {.local = true});
}

void fresh_option(Options& options, bool& fresh) {
  options.option("fresh", fresh,
                 "begin anew: what an earlier run left in the folder is moved to before-1, "
                 "before-2, ... in it",
                 {.once = true});
}

void json_option(Options& options, bool& json) {
  options.option("json", json, "print the result as one JSON document", {.local = true});
}

}  // namespace tempera::config
