// What the simulator throws when a kernel or its caller breaks a rule of CUDA.
#pragma once

#include <stdexcept>

namespace zen::simulator {

class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace zen::simulator
