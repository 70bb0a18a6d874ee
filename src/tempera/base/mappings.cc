#include "tempera/base/mappings.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>

namespace tempera {
namespace {

// Which files are mapped where, for a signal's handler: it may read nothing that another thread is
// just writing, so a name is complete before its address is set.
struct Mapping {
  std::atomic<bool> taken = false;
  std::atomic<const std::byte*> begin = nullptr;
  std::atomic<size_t> size = 0;
  std::array<char, 512> name = {};
};
std::array<Mapping, 256> g_mappings;  // further ones stay without a name

void put(const char* text) {
  if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) return;  // there is nobody left to tell
}

extern "C" void explain_bus_error(int, siginfo_t* info, void*) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  const char* name = "a file";
  for (const Mapping& mapping : g_mappings) {
    const std::byte* begin = mapping.begin;
    if (begin && at >= begin && at < begin + mapping.size) name = mapping.name.data();
  }
  put("tempera: ");
  put(name);
  put(" was cut short while it was read, or its disk failed; run again when nobody writes to it\n");
  ::_exit(1);
}

}  // namespace

void note_mapping(std::span<const std::byte> bytes, const std::string& name) {
  for (Mapping& mapping : g_mappings) {
    if (mapping.taken.exchange(true)) continue;
    mapping.name.fill('\0');
    name.copy(mapping.name.data(), mapping.name.size() - 1);
    mapping.size = bytes.size();
    mapping.begin = bytes.data();
    return;
  }
}

void forget_mapping(std::span<const std::byte> bytes) {
  for (Mapping& mapping : g_mappings) {
    if (mapping.begin != bytes.data()) continue;
    mapping.begin = nullptr;
    mapping.taken = false;
    return;
  }
}

void explain_lost_mappings() {
  struct sigaction action = {};
  action.sa_sigaction = explain_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace tempera
