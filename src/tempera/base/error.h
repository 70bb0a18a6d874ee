#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace tempera {

// What a user sees when something cannot be done: what was given, what was expected, what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A wrong way to call the program (exit code 2), as opposed to a failure of the work (exit code 1).
class UsageError : public Error {
 public:
  using Error::Error;
};

template <class... Parts>
std::string concat(Parts&&... parts) {
  std::ostringstream text;
  (text << ... << std::forward<Parts>(parts));
  return std::move(text).str();
}

}  // namespace tempera

// Throws tempera::Error with the parts joined as its message unless the condition holds.
#define TEMPERA_CHECK(condition, ...)                         \
  do {                                                        \
    if (!(condition)) [[unlikely]]                            \
      throw ::tempera::Error(::tempera::concat(__VA_ARGS__)); \
  } while (false)
