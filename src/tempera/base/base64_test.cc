#include "tempera/base/base64.h"

#include <gtest/gtest.h>

#include <string_view>

namespace tempera {
namespace {

std::string of(std::string_view text) {
  return encode_base64({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

// RFC 4648, section 10.
TEST(Base64, EncodesWithPadding) {
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(of("f"), "Zg==");
  EXPECT_EQ(of("fo"), "Zm8=");
  EXPECT_EQ(of("foo"), "Zm9v");
  EXPECT_EQ(of("foobar"), "Zm9vYmFy");
  EXPECT_EQ(of("\xff\xfb\xef"), "//vv");
}

}  // namespace
}  // namespace tempera
