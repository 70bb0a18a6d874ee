#pragma once

#include <cstdint>
#include <string>

namespace tempera::study::scaling {

// A text for studies without one of their own, the same each time: sentences of made-up words.
// Words are as frequent as their rank says (Zipf), each has some that like to follow it, and a
// paragraph keeps coming back to a few of its own, so that there is something to learn for models
// of all sizes, and something to find again in the context.
std::string made_text(int64_t bytes);

}  // namespace tempera::study::scaling
