// Stacks that take turns on one operating system thread.
//
// A fiber starts with makecontext() and from then on is left and entered with the compiler's own
// setjmp and longjmp, which save three registers and ask nothing of the kernel. AddressSanitizer is
// told of every change of stack; ThreadSanitizer sees each fiber as a thread, and no order between
// two of them but what the simulator announces.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <memory>

namespace zen::simulator {

class Fiber {
 public:
  Fiber() = default;  // stands for the stack that is running already
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Gives the fiber a stack of its own, on which entry() begins at the first switch. entry() never
  // returns.
  void prepare(void (*entry)());
  bool prepared() const { return stack_ != nullptr; }

  // Leaves `from`, which must be running, for `to`; returns when somebody switches back.
  static void switch_to(Fiber& from, Fiber& to);

  // The first thing that entry() calls. `from` is the fiber that switched to it.
  static void arrived(Fiber& self, Fiber& from);

  // For ThreadSanitizer: from here on the fiber is a new thread, which has seen what this one has.
  void renew_identity();
  void adopt_running_identity();

 private:
  static void leave(Fiber& from, Fiber& to);

  std::unique_ptr<std::byte[]> stack_;
  bool fresh_ = false;
  ucontext_t context_;
  void* registers_[5];
  const void* stack_bottom_ = nullptr;
  size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
  void* identity_ = nullptr;    // ThreadSanitizer's
  bool owns_identity_ = false;
};

// For ThreadSanitizer: what happened before release() happens before what follows acquire().
void release(void* object);
void acquire(void* object);

}  // namespace zen::simulator
