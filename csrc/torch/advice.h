// The cost model for Python: looks at gradients, and what schemes would cost by them.
#pragma once

#include <pybind11/pybind11.h>

namespace zen {

// Adds look(), together(), default_chunks() and Sparsity, which python/zensync/_C.pyi describes.
void add_advice(pybind11::module_& module);

}  // namespace zen
