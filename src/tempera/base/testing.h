#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "tempera/base/error.h"

namespace tempera {

// What an action complains of, empty when it does not; any other exception goes on.
template <class Complaint = Error>
std::string message_of(const auto& action) {
  try {
    action();
  } catch (const Complaint& error) {
    return error.what();
  }
  return "";
}

inline testing::AssertionResult says(const std::string& message, std::string_view part) {
  if (message.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << message << "\" does not say \"" << part << "\"";
}

}  // namespace tempera
