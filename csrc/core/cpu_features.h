// Which instruction set the kernels of this folder use, chosen at run time.
//
// A kernel exists as plain C++ (`scalar`, the reference that the tests trust) and, on x86-64, for
// AVX2. Both give the same bits, except the payload of a NaN.
#pragma once

#include <cstdint>

namespace zen {

enum class Isa : uint8_t { scalar, avx2 };

const char* name_of(Isa isa);

// Whether this processor and this build can run `isa`.
bool supported(Isa isa);

// The fastest supported one, unless the environment variable ZENSYNC_ISA (`scalar` or `avx2`) says
// otherwise: for tests and for bug reports. Read once. Throws InvalidArgument if it names anything
// else or something unsupported.
Isa preferred_isa();

// Whether PEXT and PDEP are instructions worth using: AMD before Zen 3 takes hundreds of cycles for
// one. The AVX2 kernels of value packing, of positions and of merging are built on them: there the
// plain versions of the first two are used and the other one of the third. The environment variable
// ZENSYNC_PEXT (0 or 1) says otherwise, for tests and bug reports. Read once. Throws
// InvalidArgument if it is anything else.
bool quick_pext();

}  // namespace zen
