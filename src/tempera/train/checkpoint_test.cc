#include "tempera/train/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tempera/base/error.h"
#include "tempera/base/files.h"
#include "tempera/data/testing.h"
#include "tempera/models/tensor_file.h"
#include "tempera/ops/torch.h"
#include "tempera/train/log.h"
#include "tempera/train/run_folder.h"

namespace tempera::train {
namespace {

namespace fs = std::filesystem;

Checkpoint sample(int64_t step) {
  Checkpoint checkpoint;
  checkpoint.state = {{"step", step}, {"loss", 0.1 + static_cast<double>(step)}};
  checkpoint.files["config.json"] = "{}\n";
  checkpoint.model = {{"w", torch::arange(6).to(torch::kFloat).view({2, 3}) + step},
                      {"h", torch::ones({3}, torch::kBFloat16)},
                      {"scalar", torch::tensor(2.5)},
                      {"empty", torch::zeros({0, 4})}};
  checkpoint.optimizer = {{"steps", torch::tensor(step)}, {"w.first", torch::rand({2, 3})}};
  return checkpoint;
}

void flip_a_byte(const fs::path& path, int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const auto byte = static_cast<char>(file.get() ^ 1);
  file.seekp(at);
  file.put(byte);
}

void ignore(std::string_view) {}

TEST(Checkpoint, ComesBackWithTheSameBits) {
  const TempFolder folder;
  const auto path = folder.path() / "step-00000003";
  const Checkpoint written = sample(3);
  write_checkpoint(path, written);
  EXPECT_EQ(verify_checkpoint(path)["loss"], written.state["loss"]);
  EXPECT_EQ(read_file(path / "config.json", 100), written.files.at("config.json"));
  const nn::StateMap model = models::read_tensors(path / kModelFile);
  ASSERT_EQ(model.size(), written.model.size());
  for (const auto& [name, tensor] : written.model) {
    EXPECT_EQ(model.at(name).scalar_type(), tensor.scalar_type());
    EXPECT_TRUE(torch::equal(model.at(name), tensor)) << name;
  }
  const auto optimizer = models::read_tensors(path / kOptimizerFile);
  EXPECT_TRUE(torch::equal(optimizer.at("steps"), torch::tensor(int64_t{3})));
  // Written again under the same name: replaced, and nothing left beside it.
  write_checkpoint(path, sample(4));
  EXPECT_EQ(verify_checkpoint(path)["step"], 4);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(Checkpoint, EveryDamageIsFound) {
  const TempFolder folder;
  const auto path = folder.path() / "step-00000003";
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "config.json"}) {
    write_checkpoint(path, sample(3));
    fs::resize_file(path / name, fs::file_size(path / name) - 1);
    EXPECT_NE(message_of([&] { verify_checkpoint(path); }).find(" bytes instead of "),
              std::string::npos);
    write_checkpoint(path, sample(3));
    flip_a_byte(path / name, static_cast<int64_t>(fs::file_size(path / name)) - 1);
    EXPECT_NE(message_of([&] { verify_checkpoint(path); }).find("checksum is wrong"),
              std::string::npos);
    write_checkpoint(path, sample(3));
    fs::remove(path / name);
    EXPECT_NE(message_of([&] { verify_checkpoint(path); }).find(name), std::string::npos);
  }
  // In the state itself no byte can change unseen, and none of its prefixes passes.
  write_checkpoint(path, sample(3));
  const std::string good = read_file(path / "state.json", 1 << 20);
  const Json original = verify_checkpoint(path);
  for (size_t at = 0; at < good.size(); at += 3) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write_file(path / "state.json", bad);
    try {
      EXPECT_EQ(verify_checkpoint(path), original) << at;  // white space
    } catch (const Error&) {
    }
    write_file(path / "state.json", good.substr(0, at));
    EXPECT_THROW(verify_checkpoint(path), Error) << at;
  }
}

TEST(Checkpoint, FilesOfAnotherOneAreRefused) {
  const TempFolder folder;
  write_checkpoint(folder.path() / "a", sample(1));
  write_checkpoint(folder.path() / "b", sample(2));
  fs::copy_file(folder.path() / "a" / "model.safetensors",
                folder.path() / "b" / "model.safetensors", fs::copy_options::overwrite_existing);
  EXPECT_NE(message_of([&] { verify_checkpoint(folder.path() / "b"); }).find("of another"),
            std::string::npos);
}

TEST(RunFolder, TheNewestCompleteCheckpointWins) {
  const TempFolder folder;
  const auto path = folder.path() / "run";
  RunFolder run(path, "train");
  EXPECT_FALSE(run.mark());
  run.begin({{"steps", 5}}, "steps = 5\n");
  run.keep();
  EXPECT_FALSE(run.newest(ignore));
  for (const int64_t step : {10, 20, 30, 40})
    run.save(sample(step), step, /*best_step=*/20, /*keep=*/2);
  EXPECT_TRUE(fs::exists(run.checkpoint_path(20)));  // the best
  EXPECT_TRUE(fs::exists(run.checkpoint_path(30)));
  EXPECT_FALSE(fs::exists(run.checkpoint_path(10)));
  EXPECT_EQ(verify_checkpoint(path / "last")["step"], 40);
  EXPECT_EQ(verify_checkpoint(path / "best")["step"], 20);
  EXPECT_EQ(fs::read_symlink(path / "best"),
            fs::path("checkpoints") / run.checkpoint_path(20).filename());
  EXPECT_EQ(run.newest(ignore)->state["step"], 40);

  std::vector<std::string> lines;
  const auto note = [&](std::string_view line) { lines.emplace_back(line); };
  fs::resize_file(run.checkpoint_path(40) / "optimizer.safetensors", 10);
  EXPECT_EQ(run.newest(note)->state["step"], 30);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_NE(lines[0].find("optimizer.safetensors"), std::string::npos);
  // Going on from there replaces the damaged one.
  run.save(sample(40), 40, 20, 2);
  EXPECT_EQ(run.newest(ignore)->state["step"], 40);

  for (const int64_t step : {20, 30, 40}) fs::remove(run.checkpoint_path(step) / "state.json");
  EXPECT_NE(message_of([&] { run.newest(ignore); }).find("can be used"), std::string::npos);
}

TEST(RunFolder, LeftoversAreRemovedAndStrangersSkipped) {
  const char* kPart = ".step-00000020.tempera-0123456789abcdef.part";
  const TempFolder folder;
  {
    RunFolder other(folder.path() / "other", "train");
    other.begin({}, "");
    other.keep();
    other.save(sample(50), 50, std::nullopt, 2);
    RunFolder run(folder.path() / "run", "train");
    run.begin({}, "");
    run.keep();
    run.save(sample(10), 10, std::nullopt, 2);
    fs::copy(other.checkpoint_path(50), run.checkpoint_path(50), fs::copy_options::recursive);
    fs::create_directories(folder.path() / "run" / "checkpoints" / kPart);
    fs::create_directories(folder.path() / "run" / "checkpoints" / "notes");
  }
  RunFolder run(folder.path() / "run", "train");
  EXPECT_FALSE(fs::exists(folder.path() / "run" / "checkpoints" / kPart));
  std::string said;
  EXPECT_EQ(run.newest([&](std::string_view line) { said += line; })->state["step"], 10);
  EXPECT_NE(said.find("belongs to another run"), std::string::npos);
  // The other run's is not replaced where this one comes to the same step.
  const std::string theirs = read_file(run.checkpoint_path(50) / "state.json", 1 << 20);
  run.save(sample(50), 50, std::nullopt, 1);
  EXPECT_EQ(run.newest(ignore)->state["step"], 50);
  EXPECT_EQ(read_file(run.checkpoint_path(50).string() + ".other-1/state.json", 1 << 20), theirs);
}

TEST(RunFolder, HoldsTheRunOfOneVerb) {
  const TempFolder folder;
  {
    RunFolder run(folder.path() / "run", "train");
    run.begin({}, "");
    run.keep();
  }
  EXPECT_NE(message_of([&] {
              const RunFolder run(folder.path() / "run", "finetune");
            }).find("holds a run of `tempera train`"),
            std::string::npos);
}

TEST(RunFolder, OneProcessAtATimeAndNothingForeign) {
  const TempFolder folder;
  const auto path = folder.path() / "run";
  {
    const RunFolder run(path, "train");
    const std::string message = message_of([&] { const RunFolder second(path, "train"); });
    EXPECT_NE(message.find("another process (pid " + std::to_string(::getpid()) + ")"),
              std::string::npos)
        << message;
  }
  EXPECT_FALSE(fs::exists(path));  // nothing began
  fs::create_directories(path);
  write_file(path / "thesis.tex", "text");
  EXPECT_NE(message_of([&] { const RunFolder run(path, "train"); }).find("thesis.tex"),
            std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(path), {}), 1);
  write_file(folder.path() / "file", "text");
  EXPECT_NE(message_of([&] {
              const RunFolder run(folder.path() / "file", "train");
            }).find("not a folder"),
            std::string::npos);
}

TEST(RunLog, DropsWhatAResumedRunWritesAgainAndATornLine) {
  const TempFolder folder;
  const auto path = folder.path() / "log.jsonl";
  {
    RunLog log(path, 0);
    for (const int64_t step : {1, 2, 3}) log.append({{"step", step}, {"loss", 0.1}});
  }
  std::ofstream(path, std::ios::app) << "{\"step\": 4, \"lo";
  RunLog log(path, 2);
  log.append({{"step", 3}, {"loss", 0.2}});
  const auto lines = read_log(path);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[2]["loss"], 0.2);
  EXPECT_EQ(lines[1]["step"], 2);
}

TEST(LogReader, FollowsALogThatIsWritten) {
  const TempFolder folder;
  const auto path = folder.path() / "log.jsonl";
  LogReader reader(path);
  const auto steps = [&](bool anew) {
    const auto news = reader.read();
    EXPECT_EQ(news.anew, anew);
    std::vector<int64_t> found;
    for (const auto& line : news.lines) found.push_back(line["step"]);
    return found;
  };
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(steps(false), Steps());
  const auto append = [&](const char* text) { std::ofstream(path, std::ios::app) << text; };
  append("{\"step\": 1}\n{\"step\": 2}\n{\"st");
  EXPECT_EQ(steps(false), (Steps{1, 2}));
  EXPECT_EQ(steps(false), Steps());
  append("ep\": 3}\n");
  EXPECT_EQ(steps(false), (Steps{3}));
  append("{\"step\": 4, torn");
  EXPECT_EQ(steps(false), Steps());
  // A run that goes on from step 2 has the log anew, whether it is as long as the old one or not.
  RunLog log(path, 2);
  for (const int64_t step : {3, 4}) log.append({{"step", step}, {"loss", 0.5}});
  EXPECT_EQ(steps(true), (Steps{1, 2, 3, 4}));
  EXPECT_EQ(steps(false), Steps());
}

}  // namespace
}  // namespace tempera::train
