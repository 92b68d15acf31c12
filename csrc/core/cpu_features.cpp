#include "core/cpu_features.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace zen {

namespace {

#if defined(__x86_64__)
// Not every compiler's __builtin_cpu_supports() knows f16c.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

Isa choose() {
  const char* wish = std::getenv("ZENSYNC_ISA");
  if (wish == nullptr || *wish == '\0') return supported(Isa::avx2) ? Isa::avx2 : Isa::scalar;
  for (Isa isa : {Isa::scalar, Isa::avx2}) {
    if (std::string_view(wish) != name_of(isa)) continue;
    if (!supported(isa))
      throw InvalidArgument(std::string("ZENSYNC_ISA is ") + wish +
                            ", which this processor does not support; unset it or use scalar");
    return isa;
  }
  throw InvalidArgument(std::string("ZENSYNC_ISA is \"") + wish + "\"; use scalar or avx2");
}

bool has_quick_pext() {
#if defined(__x86_64__)
  return supported(Isa::avx2) && !__builtin_cpu_is("znver1") && !__builtin_cpu_is("znver2");
#else
  return false;
#endif
}

bool choose_pext() {
  const char* wish = std::getenv("ZENSYNC_PEXT");
  if (wish == nullptr || *wish == '\0') return has_quick_pext();
  if (std::string_view(wish) == "0") return false;
  if (std::string_view(wish) == "1") return supported(Isa::avx2);
  throw InvalidArgument(std::string("ZENSYNC_PEXT is \"") + wish + "\"; use 0 or 1");
}

}  // namespace

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
  }
  return "unknown";
}

bool supported(Isa isa) {
#if defined(__x86_64__)
  // Every processor with AVX2 also has the bit counting and half conversion the kernels use, but a
  // hypervisor may hide some of them.
  if (isa == Isa::avx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt") && has_f16c();
#endif
  return isa == Isa::scalar;
}

Isa preferred_isa() {
  static const Isa isa = choose();
  return isa;
}

bool quick_pext() {
  static const bool quick = choose_pext();
  return quick;
}

}  // namespace zen
