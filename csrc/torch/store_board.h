// A store as a Board.
#pragma once

#include <memory>

#include "schemes/board.h"
#include "torch/c10d_transport.h"

namespace zen {

using Store = c10::intrusive_ptr<c10d::Store>;

// Null without a store. Any kind of store will do.
std::unique_ptr<Board> store_board(const Store& store);

}  // namespace zen
