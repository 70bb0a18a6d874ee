// safetensors_tool list PATH                     the tensors and metadata as JSON, bytes in
// hexadecimal safetensors_tool copy FROM TO                  reads and writes a file
// safetensors_tool shard FROM FOLDER BYTES       reads and writes a folder
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tempera/base/error.h"
#include "tempera/io/safetensors.h"

namespace {

using tempera::io::Safetensors;

std::string hexadecimal(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

void list(const Safetensors& file) {
  nlohmann::json out{{"metadata", file.metadata()}, {"tensors", nlohmann::json::object()}};
  for (const auto& tensor : file.tensors())
    out["tensors"][tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                                   {"shape", tensor.shape},
                                   {"bytes", hexadecimal(tensor.bytes)}};
  std::cout << out.dump() << "\n";
}

int run(const std::vector<std::string>& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments[0];
  const auto all = [](const Safetensors& file) {
    return std::vector(file.tensors().begin(), file.tensors().end());
  };
  if (verb == "list" && arguments.size() == 2) {
    list(Safetensors(arguments[1]));
  } else if (verb == "copy" && arguments.size() == 3) {
    const Safetensors from(arguments[1]);
    tempera::io::write_safetensors(arguments[2], all(from), from.metadata());
  } else if (verb == "shard" && arguments.size() == 4) {
    const Safetensors from(arguments[1]);
    tempera::io::write_safetensors_folder(arguments[2], all(from), from.metadata(),
                                          std::stoull(arguments[3]));
  } else {
    std::cerr << "list PATH, copy FROM TO or shard FROM FOLDER BYTES expected\n";
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
