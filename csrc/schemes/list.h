// Every scheme: one function, in one file of its own.
#pragma once

#include "schemes/exchange.h"

namespace zen {

Scheme allreduce();
Scheme agsparse();
Scheme sparcml();
Scheme omnireduce();
Scheme sparse_ps();
Scheme sparse_ps_broadcast();
Scheme balanced_parallelism();
Scheme hierarchical();

}  // namespace zen
