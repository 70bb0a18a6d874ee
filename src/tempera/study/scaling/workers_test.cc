#include "tempera/study/scaling/workers.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <string>

#include "tempera/base/interrupt.h"

namespace tempera::study::scaling {
namespace {

// Says back what it hears; some words have a meaning.
void echo(LineSocket& parent) {
  for (std::string line; parent.receive(line);) {
    if (line == "die") ::kill(::getpid(), SIGKILL);
    if (line == "wait")
      while (InterruptGuard::signal() == 0) ::usleep(1000);
    parent.send(line + " by " + std::to_string(::getpid()));
    if (line == "wait") return;
  }
}

// All that comes until each worker said a line or ended.
std::map<size_t, Workers::News> listen(Workers& workers, size_t count) {
  std::map<size_t, Workers::News> heard;
  for (int i = 0; i < 600 && heard.size() < count; ++i)
    for (auto& news : workers.wait(0.1)) heard[news.worker] = std::move(news);
  return heard;
}

TEST(Workers, AnswerSideBySide) {
  Workers workers(3, echo);
  for (size_t i = 0; i < 3; ++i) workers.send(i, "hello " + std::to_string(i));
  auto heard = listen(workers, 3);
  ASSERT_EQ(heard.size(), 3U);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(heard[i].lines.at(0).starts_with("hello " + std::to_string(i) + " by "));
  EXPECT_NE(heard[0].lines[0].substr(7), heard[1].lines[0].substr(7));
}

TEST(Workers, OneThatEndsIsNoticedAndReplaced) {
  Workers workers(2, echo);
  workers.send(0, "die");
  auto heard = listen(workers, 1);
  EXPECT_TRUE(heard[0].ended);
  EXPECT_EQ(heard[0].how, "by signal 9");
  workers.send(0, "to nobody");  // is no SIGPIPE
  workers.restart(0);
  workers.send(0, "again");
  workers.send(1, "still");
  heard = listen(workers, 2);
  EXPECT_TRUE(heard[0].lines.at(0).starts_with("again"));
  EXPECT_TRUE(heard[1].lines.at(0).starts_with("still"));
}

TEST(Workers, StopWhenAsked) {
  const InterruptGuard guard;
  Workers workers(1, echo);
  workers.send(0, "wait");
  EXPECT_TRUE(workers.wait(0.2).empty());
  workers.ask_to_stop();
  auto heard = listen(workers, 1);
  EXPECT_TRUE(heard[0].lines.at(0).starts_with("wait by"));
  EXPECT_EQ(InterruptGuard::signal(), 0);  // the parent's own
}

TEST(Workers, EndWithTheirParent) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    Workers workers(1, echo);
    workers.send(0, "hello");
    const auto heard = listen(workers, 1);
    const std::string line = heard.at(0).lines.at(0);
    const pid_t worker = std::stoi(line.substr(line.rfind(' ')));
    if (::write(ends[1], &worker, sizeof(worker)) < 0) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  pid_t worker = 0;
  ASSERT_EQ(::read(ends[0], &worker, sizeof(worker)), static_cast<ssize_t>(sizeof(worker)));
  bool gone = false;
  for (int i = 0; i < 6000 && !gone; ++i, ::usleep(10'000)) {
    // Its reaper may not have fetched it yet: then it has no memory any more.
    const std::string path = "/proc/" + std::to_string(worker) + "/maps";
    FILE* maps = ::fopen(path.c_str(), "r");
    gone = !maps || ::fgetc(maps) == EOF;
    if (maps) ::fclose(maps);
  }
  EXPECT_TRUE(gone);
}

}  // namespace
}  // namespace tempera::study::scaling
