#include "tempera/cli/failure.h"

#include <gtest/gtest.h>

namespace tempera::cli {
namespace {

config::Options with(std::initializer_list<const char*> names) {
  static int64_t value = 1;
  config::Options options;
  for (const char* name : names) options.option(name, value, "a number");
  return options;
}

c10::Error failed(const std::string& words) { return {{__func__, __FILE__, 1}, words}; }

TEST(Failure, MemoryNamesWhatToLower) {
  const auto error = failed(
      "[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory: you tried "
      "to allocate 400 bytes. Error code 12 (Cannot allocate memory)");
  EXPECT_EQ(torch_failure(error, with({"batch", "context"})),
            "out of memory: you tried to allocate 400 bytes, more than this process gets; what "
            "helps: lower --batch or --context");
  EXPECT_NE(torch_failure(error, with({"out"})).find("a smaller model"), std::string::npos);
}

TEST(Failure, OfAGpuKeepsItsNumbers) {
  const c10::OutOfMemoryError error(
      {__func__, __FILE__, 1},
      "CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has 1 GiB free. Including non-PyTorch "
      "memory, this process has much more to say.");
  EXPECT_EQ(torch_failure(error, with({"window"})),
            "CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has 1 GiB free. What helps: lower "
            "--window");
}

TEST(Failure, OtherWordsStay) {
  EXPECT_EQ(torch_failure(failed("shapes differ"), with({"batch"})), "shapes differ");
}

}  // namespace
}  // namespace tempera::cli
