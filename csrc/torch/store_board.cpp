#include "torch/store_board.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

namespace zen {

namespace {

class StoreBoard final : public Board {
 public:
  explicit StoreBoard(Store store) : store_(std::move(store)) {}

  // get() alone would wait for the key.
  std::optional<std::string> read(const std::string& key) override {
    if (!store_->check({key})) return std::nullopt;
    return store_->get_to_str(key);
  }
  void write(const std::string& key, const std::string& text) override { store_->set(key, text); }
  std::string replace(const std::string& key, const std::string& expected,
                      const std::string& text) override {
    return store_->compareSet(key, expected, text);
  }

 private:
  const Store store_;
};

}  // namespace

std::unique_ptr<Board> store_board(const Store& store) {
  if (!store) return nullptr;
  return std::make_unique<StoreBoard>(c10::make_intrusive<c10d::PrefixStore>("zensync", store));
}

}  // namespace zen
