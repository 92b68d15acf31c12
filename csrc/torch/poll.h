// Waiting with a deadline for what can only be asked for, like work on a GPU.
#pragma once

#include <chrono>
#include <thread>

namespace zen {

// Asks until done() says yes; false if `limit` has passed before. The first questions come without
// a pause, because most waits are short; later ones leave the processor to others.
template <class Done>
bool poll_until(Done&& done, std::chrono::nanoseconds limit) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kWithoutPause = std::chrono::microseconds(20),
                 kPause = std::chrono::microseconds(50);
  const Clock::time_point begin = Clock::now();
  while (!done()) {
    const auto waited = Clock::now() - begin;
    if (waited >= limit) return done();
    if (waited >= kWithoutPause) std::this_thread::sleep_for(kPause);
  }
  return true;
}

}  // namespace zen
