#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tempera/config/options.h"
#include "tempera/data/dataset.h"
#include "tempera/data/random.h"

// Built-in tasks: endless training rows and fixed held-out sets out of a seed, no file needed. A
// new one is one file with a class and an entry, one word in TEMPERA_GENERATORS, and a test.
namespace tempera::data {

// The options of a generator by name; all hold int64_t.
using GeneratorOptions = std::map<std::string, config::Value>;

struct GeneratorEntry {
  std::string name;
  std::string help;
  std::vector<config::Declaration> options;
  // Gets every option, each inside its range.
  std::unique_ptr<Dataset> (*make)(const GeneratorOptions& options, uint64_t seed);
};

// For GeneratorEntry::make.
template <class Task>
std::unique_ptr<Dataset> make_as(const GeneratorOptions& options, uint64_t seed) {
  return std::make_unique<Task>(options, seed);
}

// The list is explicit: a generator exists because it is written here. Each is defined in the file
// of its name.
#define TEMPERA_GENERATORS(X) X(phonebook) X(recall) X(passkey) X(copy)

#define TEMPERA_DECLARE_GENERATOR(name) GeneratorEntry generator_##name();
TEMPERA_GENERATORS(TEMPERA_DECLARE_GENERATOR)
#undef TEMPERA_DECLARE_GENERATOR

const std::vector<GeneratorEntry>& generators();
// Throws UsageError with the nearest known name where there is no such generator.
const GeneratorEntry& find_generator(std::string_view name);
// Options that are not given take their defaults. Unknown ones and values out of range throw
// UsageError.
std::unique_ptr<Dataset> make_generator(std::string_view name, const GeneratorOptions& given,
                                        uint64_t seed);

// The same task with one held-out set, of 64 rows, of the given size: its rows begin with those
// that the size has in a longer list of sets.
std::unique_ptr<Dataset> make_generator_of_size(std::string_view name, GeneratorOptions options,
                                                int64_t size);

// The common part of the generators: who asks for rows, and which random stream each row gets.
class Generator : public Dataset {
 public:
  std::string name() const override { return name_; }
  Batch train(const BatchRequest& request) const final;
  const std::vector<HeldOutSet>& held_out_sets() const final { return held_out_; }
  Batch held_out(size_t set, int64_t first_row, int64_t rows) const final;

 protected:
  // What all rows of a batch share.
  struct Layout {
    int64_t size = 0;   // what the task counts by
    int64_t noise = 0;  // tokens that carry nothing, for the tasks that have them
    int64_t questions = 0;
    int64_t length = 0;
  };
  class RowStreams {
   public:
    RowStreams(uint64_t seed, uint64_t step, int64_t first_row)
        : seed_(seed), step_(step), first_row_(first_row) {}
    RandomStream operator()(int64_t row) const {
      return {seed_, step_, static_cast<uint32_t>(first_row_ + row)};
    }

   private:
    uint64_t seed_;
    uint64_t step_;
    int64_t first_row_;
  };

  Generator(std::string name, uint64_t seed);
  // Held-out sets at first, 2 first, 4 first, ... up to last: 64 rows in the first, 16 in the
  // others.
  void add_held_out_sets(int64_t first, int64_t last);

  virtual Layout train_layout(RandomStream& random) const = 0;
  virtual Layout held_out_layout(int64_t size) const = 0;
  // Writes tokens, targets (kIgnored before) and the positions of all rows.
  virtual void fill(const Layout& layout, const RowStreams& streams, Batch& batch) const = 0;

 private:
  Batch make_batch(const Layout& layout, const RowStreams& streams, int64_t rows) const;

  std::string name_;
  uint64_t train_seed_;
  uint64_t held_out_seed_;
  std::vector<HeldOutSet> held_out_;
};

// Throws UsageError unless none of the options is above the one that follows it.
void check_order(const GeneratorOptions& options, std::initializer_list<const char*> names);
int64_t option(const GeneratorOptions& options, const std::string& name);
config::Declaration declare(std::string name, int64_t value, int64_t low, int64_t high,
                            std::string help);

}  // namespace tempera::data
