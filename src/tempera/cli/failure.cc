#include "tempera/cli/failure.h"

#include <string_view>

#include "tempera/base/error.h"

namespace tempera::cli {
namespace {

std::string what_to_lower(const config::Options& options) {
  std::string advice;
  for (const char* name : {"micro-batch", "batch", "length", "context", "window", "max-tokens"})
    if (options.find(name)) advice += concat(advice.empty() ? "lower --" : " or --", name);
  if (options.find("recompute")) advice += ", or give --recompute";
  return advice.empty() ? "a smaller model, or another machine, is needed" : advice;
}

// What stands from `begin` on, up to `end`: torch goes on with advice for its own users.
std::string between(std::string_view words, std::string_view begin, std::string_view end) {
  const size_t first = words.find(begin);
  if (first != std::string_view::npos) words.remove_prefix(first);
  return std::string(words.substr(0, words.find(end)));
}

}  // namespace

std::string torch_failure(const c10::Error& error, const config::Options& options) {
  const std::string words = error.what_without_backtrace();
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error))
    return concat(between(words, "CUDA out of memory", " Including non-PyTorch memory"),
                  " What helps: ", what_to_lower(options));
  if (words.find("can't allocate memory") != std::string::npos)
    return concat("out of memory: ", between(words, "you tried to allocate", ". Error code"),
                  ", more than this process gets; what helps: ", what_to_lower(options));
  return words;
}

}  // namespace tempera::cli
