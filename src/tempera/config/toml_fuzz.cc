#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tempera/base/error.h"
#include "tempera/config/settings.h"
#include "tempera/config/testing_settings.h"

// Any bytes as a configuration file: settings, or tempera::Error; and settings survive a dump.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tempera::config;  // NOLINT(google-build-using-namespace): a program of one
                                    // function
  TestSettings settings;
  try {
    settings = from_toml<TestSettings>({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
  } catch (const tempera::Error&) {
    return 0;
  }
  if (from_toml<TestSettings>(dump_toml(describe(settings)), "dump") != settings) __builtin_trap();
  return 0;
}
