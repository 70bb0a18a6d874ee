#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tempera::study::scaling {

// Lines of text to and from another process.
class LineSocket {
 public:
  LineSocket() = default;
  explicit LineSocket(int descriptor) : descriptor_(descriptor) {}
  LineSocket(LineSocket&& other) noexcept;
  LineSocket& operator=(LineSocket&& other) noexcept;
  ~LineSocket();

  int descriptor() const { return descriptor_; }
  // False where the other end is gone.
  bool send(std::string_view line) const;
  // Waits for a line; false where the other end is gone.
  bool receive(std::string& line);
  // What is there already; false where the other end is gone and nothing is left.
  bool receive_ready(std::vector<std::string>& lines);

 private:
  bool take_line(std::string& line);

  int descriptor_ = -1;
  std::string buffer_;
};

// Processes of this program that work side by side: copies of this one, without its other threads,
// which must hold nothing that the work needs. They end with it, however it ends, and one that ends
// by itself takes nobody with it. They note SIGTERM as this process does (InterruptGuard), and get
// no signal of a terminal.
class Workers {
 public:
  // In each process; when it returns, the process ends.
  using Serve = std::function<void(LineSocket& parent)>;

  Workers(size_t count, Serve serve);
  // Ends those that still work.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  size_t size() const { return processes_.size(); }
  // More of them, until there are so many.
  void grow(size_t count);
  void send(size_t worker, std::string_view line);
  struct News {
    size_t worker = 0;
    std::vector<std::string> lines;
    bool ended = false;
    std::string how;  // it ended: "by signal 9", "with code 1"
  };
  // What came within this time; a signal cuts it short.
  std::vector<News> wait(double seconds);
  // A new process in the place of one that ended.
  void restart(size_t worker);
  // SIGTERM to all.
  void ask_to_stop();

 private:
  struct Process {
    pid_t id = -1;
    LineSocket socket;
  };
  Process start();
  std::string reap(Process& process);

  Serve serve_;
  std::vector<Process> processes_;
};

}  // namespace tempera::study::scaling
