#include "tempera/serve/turns.h"

namespace tempera::serve {

Turns& compute_turns() {
  static Turns turns;
  return turns;
}

}  // namespace tempera::serve
