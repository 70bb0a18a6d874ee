#pragma once

#include <string>
#include <vector>

#include "tempera/config/options.h"

namespace tempera::bench {

// What a peer runs in. Empty: to be found.
struct PeerProgram {
  std::string python;
  std::string script;

  // --python and --script
  void declare(config::Options& options);
};

// The given Python, or where it is empty the one whose torch this program uses, or python3. Throws
// UsageError where none of them has the modules.
std::string find_python(const std::string& given, const std::vector<std::string>& modules);

// What is missing in `given`: a Python that has the modules (the one whose torch this program uses,
// then python3), and the script `name` of the installation or of the sources that this program was
// built from. Throws UsageError that says what to give.
PeerProgram find_peer(const PeerProgram& given, const std::string& name,
                      const std::vector<std::string>& modules);

}  // namespace tempera::bench
