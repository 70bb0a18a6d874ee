#include "tempera/bench/spawn.h"

#include <cstring>

#include "tempera/base/error.h"

extern char** environ;

namespace tempera::bench {

pid_t spawn(const std::string& name, std::vector<std::string> command,
            const std::function<void(posix_spawn_file_actions_t&)>& redirect) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  redirect(actions);
  std::vector<char*> arguments;
  for (auto& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t process = -1;
  const int failure =
      ::posix_spawnp(&process, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0)
    throw Error(concat("cannot start ", command[0], " for ", name, ": ", std::strerror(failure)));
  return process;
}

}  // namespace tempera::bench
