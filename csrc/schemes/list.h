// Every scheme: one function, in one file of its own.
#pragma once

#include "schemes/exchange.h"

namespace zen {

Scheme allreduce();
Scheme balanced_parallelism();

}  // namespace zen
