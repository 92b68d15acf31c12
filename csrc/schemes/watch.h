// Finds out why an exchange does not end: ranks that mean different things by the same bucket, or
// one that is late.
//
// Tags carry the layout, so a rank never receives the messages of a peer that means another one: it
// waits for them, in vain, until the group's timeout. The watch's thread looks at the progress of
// the pipeline now and then. Once nothing has moved for some seconds it tells the board what this
// rank is doing, and compares with what others have told:
//
// 1. A bucket of the same number with another layout, here and there, is a disagreement, which no
//    waiting will end: it is written on the board for everybody, and the group fails.
// 2. A rank that has not come as far is late, which is no reason to fail. When the group's timeout
//    ends the wait after all, the watch says who was late, and where.
//
// While all is well it costs a lock at the start and the end of a bucket, two wake-ups a second,
// and no communication.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "schemes/board.h"

namespace zen {

// One bucket that this rank has started.
struct Step {
  uint32_t sequence = 0;     // of the bucket on this group
  std::string where;         // "bucket 2 of iteration 17"
  uint64_t fingerprint = 0;  // of its layout
  std::string description;   // of its layout, for people
};

// What the watch knows about a failure; empty if nothing.
struct Explanation {
  bool disagreement = false;
  std::string text;
};

class Watch {
 public:
  struct Timing {
    std::chrono::milliseconds tick{500};       // between two looks
    std::chrono::milliseconds patience{2000};  // without progress, before peers are told and asked
    std::chrono::milliseconds answer{2000};    // at most, for explain() and the destructor
  };

  // `fail` ends the group; it is called on the watch's thread, never after the destructor.
  Watch(std::unique_ptr<Board> board, int rank, int ranks, std::function<void()> fail,
        const Timing& timing);
  Watch(std::unique_ptr<Board> board, int rank, int ranks, std::function<void()> fail);

  // A board that does not answer is left behind, with the thread that waits for it.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // By the pipeline's thread: a bucket was started, or the one that was started first has ended.
  void started(Step step);
  void finished();

  // Why the group failed. Asks the board, if need be.
  Explanation explain();

 private:
  class Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace zen
