#include "runtime.h"

#include <cstring>

#include "rubbish.h"

using zen::simulator::current_machine;

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : "invalid argument";
}

cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = current_machine().make_stream();
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  stream->machine->destroy(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  zen::simulator::Machine& machine = *stream->machine;
  ++machine.counters.synchronisations;
  machine.run_until([&] { return machine.is_idle(stream); });
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const uint64_t record = event->recorded;
  stream->machine->add(stream, {[=] { return event->passed >= record; }, [] {}});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new zen::simulator::Event;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const uint64_t record = ++event->recorded;
  stream->machine->add(stream, {nullptr, [=] { event->passed = record; }});
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  zen::simulator::Machine& machine = current_machine();
  ++machine.counters.synchronisations;
  machine.run_until([=, record = event->recorded] { return event->passed >= record; });
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  *memory = stream->machine->allocate(bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  stream->machine->add(stream, {nullptr, [=] { stream->machine->free(memory); }});
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  *memory = zen::simulator::allocate_rubbish(bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  zen::simulator::free_rubbish(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  ++stream->machine->counters.copies;
  stream->machine->add(stream, {nullptr, [=] {
                                  if (bytes != 0) std::memcpy(to, from, bytes);
                                }});
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  stream->machine->add(stream, {nullptr, [=] {
                                  if (bytes != 0) std::memset(memory, value, bytes);
                                }});
  return cudaSuccess;
}
