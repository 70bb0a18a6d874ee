#pragma once
#include "gloo/forward.h"
