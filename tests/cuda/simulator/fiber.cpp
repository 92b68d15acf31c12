#include "fiber.h"

#ifdef ZEN_SIMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef ZEN_SIMULATOR_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace zen::simulator {

namespace {

constexpr size_t kStackBytes = size_t{64} << 10;  // sanitized frames are large

// setjmp's buffer must not be used by a longjmp of the same function.
[[noreturn, gnu::noinline]] void jump(void** registers) {
  __builtin_longjmp(registers, 1);
}

}  // namespace

Fiber::~Fiber() {
#ifdef ZEN_SIMULATOR_TSAN
  if (owns_identity_) __tsan_destroy_fiber(identity_);
#endif
#ifdef ZEN_SIMULATOR_ASAN
  // Frames that were never left are still marked.
  if (stack_) __asan_unpoison_memory_region(stack_.get(), kStackBytes);
#endif
}

void Fiber::prepare(void (*entry)()) {
  if (!stack_) stack_.reset(new std::byte[kStackBytes]);
#ifdef ZEN_SIMULATOR_ASAN
  __asan_unpoison_memory_region(stack_.get(), kStackBytes);
#endif
  stack_bottom_ = stack_.get();
  stack_bytes_ = kStackBytes;
  fake_stack_ = nullptr;
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_.get();
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
  fresh_ = true;
}

[[gnu::noinline]] void Fiber::leave(Fiber& from, Fiber& to) {
  if (__builtin_setjmp(from.registers_) != 0) return;
  if (!to.fresh_) jump(to.registers_);
  to.fresh_ = false;
  setcontext(&to.context_);
}

[[gnu::noinline]] void Fiber::switch_to(Fiber& from, Fiber& to) {
#ifdef ZEN_SIMULATOR_ASAN
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_bottom_, to.stack_bytes_);
#endif
#ifdef ZEN_SIMULATOR_TSAN
  __tsan_switch_to_fiber(to.identity_, __tsan_switch_to_fiber_no_sync);
#endif
  leave(from, to);
#ifdef ZEN_SIMULATOR_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::arrived([[maybe_unused]] Fiber& self, [[maybe_unused]] Fiber& from) {
#ifdef ZEN_SIMULATOR_ASAN
  // Where the fiber that runs on the thread's own stack has it is only known now.
  __sanitizer_finish_switch_fiber(self.fake_stack_, &from.stack_bottom_, &from.stack_bytes_);
#endif
}

void Fiber::renew_identity() {
#ifdef ZEN_SIMULATOR_TSAN
  if (owns_identity_) __tsan_destroy_fiber(identity_);
  identity_ = __tsan_create_fiber(0);
  owns_identity_ = true;
#endif
}

void Fiber::adopt_running_identity() {
#ifdef ZEN_SIMULATOR_TSAN
  identity_ = __tsan_get_current_fiber();
#endif
}

void release([[maybe_unused]] void* object) {
#ifdef ZEN_SIMULATOR_TSAN
  __tsan_release(object);
#endif
}

void acquire([[maybe_unused]] void* object) {
#ifdef ZEN_SIMULATOR_TSAN
  __tsan_acquire(object);
#endif
}

}  // namespace zen::simulator
