#pragma once

#include <cstdint>
#include <string>

#include "tempera/config/options.h"

// The options that many verbs share, so that they have the same name, range and help everywhere. A
// verb calls those that apply to it from its declare().
namespace tempera::config {

enum class Device { kAuto, kCpu, kCuda };
enum class Dtype { kFloat32, kBfloat16 };
enum class CacheDtype { kAuto, kFloat32, kBfloat16, kInt8 };

void device_option(Options& options, Device& device);
void dtype_option(Options& options, Dtype& dtype);
void cache_dtype_option(Options& options, CacheDtype& dtype);
void threads_option(Options& options, int64_t& threads);  // 0: one for each core
void seed_option(Options& options, int64_t& seed);
void out_option(Options& options, std::string& folder);
// What an earlier run left in the folder is set aside.
void fresh_option(Options& options, bool& fresh);
void json_option(Options& options, bool& json);

}  // namespace tempera::config
