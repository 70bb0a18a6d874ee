#pragma once

namespace tempera {

// Twelve hexadecimal digits that tell this program from one built of other sources. Results that
// two builds made are not of one measurement.
const char* build_id();

}  // namespace tempera
