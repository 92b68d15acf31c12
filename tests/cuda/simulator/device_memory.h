// The memory of a simulated GPU: a region that nobody may touch but kernels and copies.
//
// The region is closed (mprotect) except while an Access lives, so code of the host that reads a
// gradient or a message by its pointer ends the program and says so. Blocks start filled with
// rubbish and are handed out again as soon as they are free.
#pragma once

#include <cstddef>
#include <map>
#include <unordered_map>
#include <vector>

namespace zen::simulator {

class DeviceMemory {
 public:
  DeviceMemory();
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Throws Fault if there is no room. Blocks are aligned to 256.
  void* allocate(size_t bytes);
  // Throws Fault for memory that is not the GPU's. REQUIRES: an Access.
  void free(void* memory);

  // The region is open as long as one of them lives. They nest.
  class Access {
   public:
    explicit Access(DeviceMemory& memory);
    ~Access();
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    DeviceMemory& memory_;
  };

 private:
  void grow(size_t bytes);
  void protect(int protection);

  std::byte* region_;
  size_t used_ = 0, prepared_ = 0;  // from the region's beginning: handed out once, filled
  int open_ = 0;
  std::unordered_map<void*, size_t> blocks_;           // and their rooms
  std::map<size_t, std::vector<void*>> free_by_room_;  // the latest first
};

}  // namespace zen::simulator
