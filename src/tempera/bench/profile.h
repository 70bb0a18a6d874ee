#pragma once

#include <functional>
#include <map>
#include <string>

namespace tempera::bench {

// Seconds that the work spends in each operator itself, without the operators that it calls; what
// is in none stands under "". Only the calling thread is watched, where also the backward pass of
// the CPU runs. An operator of autograd has the name of its node.
std::map<std::string, double> operator_seconds(const std::function<void()>& work);

}  // namespace tempera::bench
