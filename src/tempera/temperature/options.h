#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tempera/config/options.h"

namespace tempera {

// The values of a method's options by name. They are declared once, in the method's registry entry,
// as the options of every verb are: the flags, the help, checkpoints and the JSON of `tempera
// methods` come from there.
using MethodOptions = std::map<std::string, config::Value>;

// Every declared option with its value: given, else from `defaults`, else the declared one. A
// number may be given in either form or as text. Throws UsageError, with the nearest known name for
// an unknown one; `owner` is in the message.
MethodOptions resolve_options(const std::string& owner,
                              const std::vector<config::Declaration>& declarations,
                              const MethodOptions& given, const MethodOptions& defaults);

double real_option(const MethodOptions& options, const std::string& name);
int64_t int_option(const MethodOptions& options, const std::string& name);
bool flag_option(const MethodOptions& options, const std::string& name);
const std::string& text_option(const MethodOptions& options, const std::string& name);

}  // namespace tempera
