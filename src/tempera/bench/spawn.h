#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace tempera::bench {

// Starts a program, which the path finds by its name. `redirect` says where its input and output
// go. Throws Error that names what the program is for.
pid_t spawn(const std::string& name, std::vector<std::string> command,
            const std::function<void(posix_spawn_file_actions_t&)>& redirect);

}  // namespace tempera::bench
