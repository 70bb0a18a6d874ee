#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "tempera/config/command_line.h"

// The parts that the help and the manual are made of.
namespace tempera::config {

// The sections in the order of the help, with their titles.
inline constexpr std::array<std::pair<Section, std::string_view>, 10> kSections = {
    {{Section::kData, "Data"},
     {Section::kModel, "Model"},
     {Section::kTemperature, "Temperature"},
     {Section::kTraining, "Training"},
     {Section::kMeasuring, "Measuring"},
     {Section::kText, "Generation"},
     {Section::kServer, "Server"},
     {Section::kOutput, "Output"},
     {Section::kComputing, "Computing"},
     {Section::kOther, "Other options"}}};

// The flags that every verb has.
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kCommonFlags = {
    {{"--config FILE", "read options from this TOML file; flags override it"},
     {"--dump-config", "print all options as TOML, for --config, and stop"},
     {"--help", "print the help and stop"},
     {"--help-all", "print the help with every option, its range and its key, and stop"}}};

inline constexpr std::string_view kListNote =
    "Lists (\"...\") are separated by commas; a flag that is given again adds to its list.";

// "tempera eval MODEL [options]"
std::string usage_text(std::string_view program, const VerbDescription& verb);
// "MODEL", "FILES..."
std::string argument_text(const Entry& entry);
// "--steps N"
std::string flag_text(const Entry& entry);
// "training steps [default 10]"; with `all` also range and key: "[1 to 100; default 10; key ...]"
std::string meaning_text(const Entry& entry, bool all);

}  // namespace tempera::config
