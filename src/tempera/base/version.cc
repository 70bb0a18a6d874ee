#include "tempera/base/version.h"

namespace tempera {

const char* version() { return TEMPERA_VERSION; }

}  // namespace tempera
