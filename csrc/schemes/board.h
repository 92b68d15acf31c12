// A few short texts that all ranks of a group can read and write: how ranks tell each other what
// they are doing when messages no longer arrive.
//
// A call may throw, and may take for ever if the process that hosts the texts is stopped.
#pragma once

#include <optional>
#include <string>

namespace zen {

class Board {
 public:
  virtual ~Board() = default;

  virtual std::optional<std::string> read(const std::string& key) = 0;
  virtual void write(const std::string& key, const std::string& text) = 0;

  // Writes `text` if the key holds `expected`, which is empty for nothing, and returns what it
  // holds afterwards. Atomic.
  virtual std::string replace(const std::string& key, const std::string& expected,
                              const std::string& text) = 0;
};

}  // namespace zen
