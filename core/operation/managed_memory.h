// Managed memory in an operation on a device: what its driver is told of it, where its pages lie before each operation,
// and what moves them. Pageable memory that a kernel reaches is the same, but that its driver is told nothing.
#pragma once

#include <string>

#include "base/case_spec.h"
#include "device/device_runtime.h"

namespace linkgauge {

// Why a case's use of managed or pageable memory cannot be, or "". `spec` may have none.
std::string why_not_managed(const DeviceRuntime& runtime, int device, const CaseSpec& spec);

// One buffer that an operation begins with on one side and ends with on the other, or that stays where it is.
class ManagedPages {
 public:
  enum class Way { kStays, kToDevice, kToHost };

  // Tells the driver what belongs to the case's use. Nothing for a buffer whose pages stay where they are.
  void take(DeviceRuntime& runtime, int device, const Buffer& buffer, const Mechanism& by, Way way);
  bool move() const { return moves_; }
  // Untimed, synchronous: the pages are where an operation begins.
  void put_back(StreamHandle stream);
  // Timed: before the bytes are touched, and after, on the stream.
  void before(StreamHandle stream);
  void after(StreamHandle stream);
  // Timed, once the stream is done: the host touches pages that came to lie on the device.
  void arrive();

 private:
  void touch(bool write);

  DeviceRuntime* runtime_ = nullptr;  // nullptr: nothing to do
  int device_ = -1;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  ManagedUse use_ = ManagedUse::kDefault;
  Way way_ = Way::kStays;
  bool moves_ = false;       // pages go to who touches them
  bool prefetches_ = false;  // the driver moves them when told
};

}  // namespace linkgauge
