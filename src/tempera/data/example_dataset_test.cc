#include "tempera/data/example_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tempera/base/files.h"
#include "tempera/data/labelled_dataset.h"
#include "tempera/data/pair_dataset.h"
#include "tempera/data/testing.h"

namespace tempera::data {
namespace {

namespace fs = std::filesystem;

const text::ByteTokenizer& bytes() {
  static const text::ByteTokenizer tokenizer;
  return tokenizer;
}

// Pair i has the source i, i, ... of i % 17 + 1 tokens and the target of one token more; 256 ends.
std::vector<Pair> counting_pairs(int64_t count) {
  std::vector<Pair> pairs;
  for (int64_t i = 0; i < count; ++i) {
    Pair pair{std::vector<int64_t>(static_cast<size_t>(i % 17 + 1), i),
              std::vector<int64_t>(static_cast<size_t>(i % 17 + 2), i)};
    pair.source.push_back(256);
    pair.target.push_back(256);
    pairs.push_back(pair);
  }
  return pairs;
}

PairDataset counting_dataset(int64_t count, const TextOptions& options) {
  return {"pairs", counting_pairs(count), text::SequenceTokens(bytes()), options};
}

const TextOptions kAll{.length = 32, .seed = 1, .held_out = 0};

TEST(ExampleDataset, TheSameExamplesAreHeldOutAtEveryLength) {
  std::set<int64_t> trained, held_out;
  const auto note = [](const Batch& batch, std::set<int64_t>& into) {
    for (const int64_t token : batch.source)
      if (token < 256) into.insert(token);
  };
  for (const int64_t length : {2, 5, 32, 1000}) {
    const auto data = counting_dataset(200, {.length = length, .seed = 2, .held_out = 0.1});
    for (uint64_t step = 0; step < 18; ++step) note(data.train(whole_batch(step, 10)), trained);
    note(data.held_out(0, 0, data.held_out_sets()[0].rows), held_out);
  }
  EXPECT_EQ(trained.size(), 180U);
  EXPECT_EQ(held_out.size(), 20U);
  for (const int64_t example : held_out) EXPECT_FALSE(trained.contains(example)) << example;
}

TEST(PairDataset, ARowReadsWhatTheOneBeforeSaid) {
  TempFolder folder;
  const auto from = put(folder.path() / "a.en", "ab\n\nc\n"),
             to = put(folder.path() / "a.de", "x\ny\nuvw");
  const auto pairs = read_pairs(std::span(&from, 1), std::span(&to, 1), bytes());
  ASSERT_EQ(pairs.size(), 2U);  // the second line has no source
  const PairDataset data("pairs", pairs, text::SequenceTokens(bytes()), kAll);
  const Batch batch = data.train(whole_batch(0, 2));
  const int64_t pad = text::ByteTokenizer::kPad, end = text::ByteTokenizer::kEndOfText;
  // Sorted by length: "ab" to "x", then "c" to "uvw".
  EXPECT_EQ(batch.source_length, 3);
  EXPECT_EQ(batch.source, (std::vector<int64_t>{'a', 'b', end, 'c', end, pad}));
  EXPECT_EQ(batch.source_lengths, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(batch.tokens, (std::vector<int64_t>{pad, 'x', pad, pad, pad, 'u', 'v', 'w'}));
  EXPECT_EQ(batch.targets,
            (std::vector<int64_t>{'x', end, kIgnored, kIgnored, 'u', 'v', 'w', end}));
  EXPECT_EQ(batch.lengths, (std::vector<int64_t>{2, 4}));
}

TEST(PairDataset, FilesThatDoNotBelongTogetherAreRefused) {
  TempFolder folder;
  const auto from = put(folder.path() / "a.en", "ab\nc\n"), to = put(folder.path() / "a.de", "x\n");
  const auto read = [&] { read_pairs(std::span(&from, 1), std::span(&to, 1), bytes()); };
  EXPECT_NE(message_of(read).find("has 2 lines and"), std::string::npos) << message_of(read);
}

TEST(PairDataset, LongSidesAreCutBeforeTheirEnd) {
  TempFolder folder;
  const auto from = put(folder.path() / "a", "abcdef"), to = put(folder.path() / "b", "x");
  const PairDataset data("pairs", read_pairs(std::span(&from, 1), std::span(&to, 1), bytes()),
                         text::SequenceTokens(bytes()), {.length = 4, .seed = 0, .held_out = 0});
  EXPECT_EQ(data.train(whole_batch(0, 1)).source, (std::vector<int64_t>{'a', 'b', 'c', 256}));
}

TEST(ExampleDataset, AnEpochHasEveryExampleOnce) {
  const auto data = counting_dataset(250, kAll);
  std::multiset<int64_t> seen;
  // 64 steps of 125 rows: 32 epochs.
  for (uint64_t step = 0; step < 64; ++step) {
    const Batch batch = data.train(whole_batch(step, 125));
    for (size_t row = 0; row < 125; ++row)
      seen.insert(batch.source[row * static_cast<size_t>(batch.source_length)]);
  }
  for (int64_t i = 0; i < 250; ++i) EXPECT_EQ(seen.count(i), 32U) << i;
}

TEST(ExampleDataset, ABatchHasNoExampleTwice) {
  const auto data = counting_dataset(100, kAll);
  for (uint64_t step = 0; step < 6; ++step) {
    const Batch batch = data.train(whole_batch(step, 16));
    std::set<int64_t> seen;
    for (size_t row = 0; row < 16; ++row)
      seen.insert(batch.source[row * static_cast<size_t>(batch.source_length)]);
    EXPECT_EQ(seen.size(), 16U);
  }
}

TEST(ExampleDataset, RowsOfLikeLengthComeTogether) {
  const auto data = counting_dataset(2000, kAll);
  int64_t used = 0, all = 0;
  std::set<int64_t> lengths;
  for (uint64_t step = 0; step < 32; ++step) {
    const Batch batch = data.train(whole_batch(step, 16));
    for (const int64_t length : batch.lengths) used += length;
    all += batch.rows * batch.length;
    lengths.insert(batch.length);
  }
  EXPECT_GT(static_cast<double>(used), 0.9 * static_cast<double>(all));
  EXPECT_GT(lengths.size(), 10U);
}

TEST(ExampleDataset, AStepIsTheSameWhoeverAsks) {
  const auto data = counting_dataset(300, kAll), again = counting_dataset(300, kAll);
  const Batch late = data.train(whole_batch(77, 8));
  EXPECT_EQ(again.train(whole_batch(77, 8)).source, late.source);
  // Micro-batches give the same rows, each filled up to its own longest.
  std::vector<int64_t> firsts;
  for (int64_t row = 0; row < 8; row += 3) {
    const Batch part = data.train(
        {.step = 77, .batch_rows = 8, .first_row = row, .rows = std::min<int64_t>(3, 8 - row)});
    for (int64_t r = 0; r < part.rows; ++r)
      firsts.push_back(part.source[static_cast<size_t>(r * part.source_length)]);
  }
  for (size_t row = 0; row < 8; ++row)
    EXPECT_EQ(firsts[row], late.source[row * static_cast<size_t>(late.source_length)]);
  auto other = kAll;
  other.seed = 2;
  EXPECT_NE(counting_dataset(300, other).train(whole_batch(77, 8)).source, late.source);
}

TEST(ExampleDataset, HeldOutRowsAreNeverTrainedOn) {
  auto options = kAll;
  options.held_out = 0.1;
  const auto data = counting_dataset(250, options);
  ASSERT_EQ(data.held_out_sets().size(), 1U);
  ASSERT_EQ(data.held_out_sets()[0].rows, 25);
  const Batch held = data.held_out(0, 0, 25);
  std::set<int64_t> kept;
  for (size_t row = 0; row < 25; ++row)
    kept.insert(held.source[row * static_cast<size_t>(held.source_length)]);
  EXPECT_EQ(kept.size(), 25U);
  EXPECT_TRUE(std::ranges::is_sorted(held.lengths));
  for (uint64_t step = 0; step < 32; ++step) {
    const Batch batch = data.train(whole_batch(step, 16));
    for (size_t row = 0; row < 16; ++row)
      EXPECT_FALSE(kept.contains(batch.source[row * static_cast<size_t>(batch.source_length)]));
  }
  options.seed = 9;
  EXPECT_EQ(counting_dataset(250, options).held_out(0, 3, 2).source, data.held_out(0, 3, 2).source);
}

TEST(LabelledDataset, ReadsTablesAndJson) {
  TempFolder folder;
  const std::vector<fs::path> files = {
      put(folder.path() / "a.tsv", "id\tlabel\tsentence\n7\t1\tgood film \n8\t0\tbad\n"),
      put(folder.path() / "b.jsonl", "{\"text\": \"so so\", \"label\": 2}\n\n")};
  const auto texts = read_labelled(files);
  ASSERT_EQ(texts.size(), 3U);
  EXPECT_EQ(texts[0].text, "good film ");
  EXPECT_EQ(texts[0].label, 1);
  EXPECT_EQ(texts[2].text, "so so");
  const text::SequenceTokens ids(bytes());
  const LabelledDataset data("labels", encode_labelled(texts, bytes()), ids,
                             {.length = 8, .seed = 1, .held_out = 0});
  EXPECT_EQ(data.classes(), 3);
  const Batch batch = data.train(whole_batch(0, 3));
  EXPECT_EQ(batch.length, 8);
  EXPECT_TRUE(batch.targets.empty());
  ASSERT_EQ(batch.labels.size(), 3U);
  const std::map<int64_t, int64_t> label_of = {{4, 0}, {6, 2}, {8, 1}};  // by length
  for (size_t row = 0; row < 3; ++row)
    EXPECT_EQ(batch.labels[row], label_of.at(batch.lengths[row]));
}

TEST(LabelledDataset, ComplaintsNameTheLine) {
  TempFolder folder;
  const auto complaint = [&](const std::string& name, const std::string& text) {
    const auto file = put(folder.path() / name, text);
    return message_of([&] { read_labelled(std::span(&file, 1)); });
  };
  EXPECT_NE(complaint("a.tsv", "x\ty\n1\t2\n").find("line 1: the columns are"), std::string::npos);
  EXPECT_NE(complaint("a.tsv", "text\tlabel\na\tb\n").find("line 2: the label 'b'"),
            std::string::npos);
  EXPECT_NE(complaint("a.tsv", "text\tlabel\na\t-1\n").find("'-1'"), std::string::npos);
  EXPECT_NE(complaint("a.tsv", "text\tlabel\na\n").find("line 2: 1 columns"), std::string::npos);
  EXPECT_NE(complaint("a.jsonl", "{\"text\": \"a\"}\n").find("line 1: no \"label\""),
            std::string::npos);
  EXPECT_NE(complaint("a.jsonl", "{\"label\": 1}\n").find("no \"text\""), std::string::npos);
  EXPECT_NE(complaint("a.jsonl", "{\"text\": \"a\", \"label\": 99999999}\n").find("label"),
            std::string::npos);
}

}  // namespace
}  // namespace tempera::data
