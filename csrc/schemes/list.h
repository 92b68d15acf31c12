// Every scheme: one function, in one file of its own.
#pragma once

#include "schemes/exchange.h"

namespace zen {

Scheme allreduce();
Scheme agsparse();
Scheme sparcml();
Scheme sparcml_coo();
Scheme omnireduce();
Scheme sparse_ps();
Scheme sparse_ps_broadcast();
Scheme sparse_ps_scatter_allgather();
Scheme zen_paper();
Scheme zen_paper_coo_pull();
Scheme balanced_parallelism();
Scheme hierarchical();

}  // namespace zen
