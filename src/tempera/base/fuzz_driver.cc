// A plain main() for fuzz targets where libFuzzer is not at hand, as with gcc: every file of the
// given folders, then mutations of them until the time is over. libFuzzer finds more; this keeps
// the targets under the sanitizers of an ordinary build.
//
// NAME SECONDS FOLDER...
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kMostBytes = 1 << 16;

class Mutator {
 public:
  explicit Mutator(const std::vector<Bytes>& seeds) : seeds_(seeds) {}

  Bytes next() {
    Bytes bytes = seeds_[below(seeds_.size())];
    for (size_t changes = 1 + below(8); changes > 0; --changes) change(bytes);
    return bytes;
  }

 private:
  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void change(Bytes& bytes) {
    const size_t at = below(bytes.size());
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (bytes.empty() ? 1 : below(6)) {
      case 0:
        *place = static_cast<uint8_t>(*place ^ (1U << below(8)));
        break;
      case 1:
        if (bytes.size() < kMostBytes) bytes.insert(place, static_cast<uint8_t>(random_()));
        break;
      case 2:
        bytes.erase(place, place + static_cast<std::ptrdiff_t>(below(bytes.size() - at) + 1));
        break;
      case 3:
        // Length fields: the ends of their range.
        *place = below(2) == 0 ? uint8_t{0xFF} : uint8_t{0};
        break;
      case 4: {
        const Bytes& other = seeds_[below(seeds_.size())];
        const size_t from = below(other.size());
        const size_t size = std::min(below(64), other.size() - from);
        if (bytes.size() + size < kMostBytes)
          bytes.insert(place, other.begin() + static_cast<std::ptrdiff_t>(from),
                       other.begin() + static_cast<std::ptrdiff_t>(from + size));
        break;
      }
      default:
        bytes.resize(at);
    }
  }

  const std::vector<Bytes>& seeds_;
  std::mt19937_64 random_{1};
};

std::vector<Bytes> read_seeds(char** begin, char** end) {
  std::vector<Bytes> seeds = {{}};
  for (char** folder = begin; folder != end; ++folder)
    for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  return seeds;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: " << argv[0] << " SECONDS FOLDER...\n";
    return 2;
  }
  const auto seeds = read_seeds(argv + 2, argv + argc);
  for (const Bytes& seed : seeds) LLVMFuzzerTestOneInput(seed.data(), seed.size());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  Mutator mutator(seeds);
  int64_t runs = 0;
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    const Bytes bytes = mutator.next();
    // Kept before it runs: what ends the process is then at hand.
    std::ofstream("last_input", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::cout << runs << " runs\n";
  return 0;
}
