// The store of a process group as a Board.
#pragma once

#include <memory>

#include "schemes/board.h"
#include "torch/c10d_transport.h"

namespace zen {

// Null if the group has no store. Any kind of store will do.
std::unique_ptr<Board> store_board(const ProcessGroup& group);

}  // namespace zen
