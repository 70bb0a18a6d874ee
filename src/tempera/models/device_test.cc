#include "tempera/models/device.h"

#include <gtest/gtest.h>

#include <sstream>
#include <stdexcept>

#include "tempera/base/testing.h"
#include "tempera/ops/torch.h"

namespace tempera::models {
namespace {

using config::Device;

const GpuTrial kNone = try_gpu(false, [] {});
const GpuTrial kWorks = try_gpu(true, [] {});
const GpuTrial kFails =
    try_gpu(true, [] { throw std::runtime_error("no kernel image is available\nframe #0"); });

std::string said(Device wanted, const GpuTrial& trial, torch::Device expected) {
  std::ostringstream out;
  EXPECT_EQ(choose_device(wanted, trial, out), expected);
  return out.str();
}

TEST(Device, AutomaticIsAGpuThatWorks) {
  EXPECT_EQ(said(Device::kAuto, kWorks, torch::kCUDA), "");
  EXPECT_EQ(said(Device::kAuto, kNone, torch::kCPU), "");
  EXPECT_EQ(said(Device::kAuto, kFails, torch::kCPU),
            "computing on the CPU: the GPU cannot compute (no kernel image is available)\n");
}

TEST(Device, WhatIsAskedForIsGivenOrRefused) {
  for (const GpuTrial& trial : {kNone, kWorks, kFails})
    EXPECT_EQ(said(Device::kCpu, trial, torch::kCPU), "");
  EXPECT_EQ(said(Device::kCuda, kWorks, torch::kCUDA), "");
  std::ostringstream out;
  const auto refusal = [&](const GpuTrial& trial) {
    return message_of([&] { choose_device(Device::kCuda, trial, out); });
  };
  EXPECT_TRUE(says(refusal(kNone), "there is no GPU"));
  EXPECT_TRUE(says(refusal(kFails), "no kernel image is available); give --device cpu"));
}

TEST(CacheType, HasNoMoreBitsThanTheComputation) {
  using config::CacheDtype;
  EXPECT_FALSE(cache_type(CacheDtype::kAuto, torch::kBFloat16));
  EXPECT_EQ(cache_type(CacheDtype::kFloat32, torch::kFloat32), torch::kFloat32);
  EXPECT_EQ(cache_type(CacheDtype::kBfloat16, torch::kFloat32), torch::kBFloat16);
  EXPECT_EQ(cache_type(CacheDtype::kInt8, torch::kBFloat16), torch::kInt8);
  EXPECT_TRUE(
      says(message_of<UsageError>([] { cache_type(CacheDtype::kFloat32, torch::kBFloat16); }),
           "give auto, bf16 or int8"));
}

// Whatever this machine has, its first kernel runs.
TEST(Device, TheAutomaticOneComputes) {
  const auto device = resolve_device(Device::kAuto);
  EXPECT_EQ(torch::ones({3}, device).sum().item<double>(), 3);
}

TEST(Threads, NoneGivenLeavesThoseThereAre) {
  const int before = at::get_num_threads();
  use_threads(3);
  EXPECT_EQ(at::get_num_threads(), 3);
  use_threads(0);
  EXPECT_EQ(at::get_num_threads(), 3);
  use_threads(before);
}

}  // namespace
}  // namespace tempera::models
