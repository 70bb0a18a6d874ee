#pragma once

#include "tempera/http/router.h"

namespace tempera::serve {

// A page to talk with a model at "/": everything on it comes from this server.
void add_page(http::Router& router);

}  // namespace tempera::serve
