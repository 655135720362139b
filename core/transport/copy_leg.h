// One way from a buffer to another, carried by one device: what the one-sided transports' channels are made of.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "device/kernel_tuning.h"
#include "transport/peer_memory.h"

namespace linkgauge {

// Host devices have one kernel: nothing was chosen there.
inline void tell_choice(const RankContext& context, const CopyVariant& variant) {
  if (context.runtime->name() == "host") return;
  context.choose("kernel", variant.kernel);
  context.choose("grid", variant.grid());
}

class CopyLeg {
 public:
  CopyLeg(DeviceRuntime& runtime, int device) : runtime_(&runtime), device_(device), stream_(runtime, device) {}
  virtual ~CopyLeg() = default;
  CopyLeg(const CopyLeg&) = delete;
  CopyLeg& operator=(const CopyLeg&) = delete;

  // Queues a copy between places of the two buffers that the leg was made for. Its device must be current.
  virtual void copy(void* target, const void* source, std::size_t bytes) = 0;
  void synchronize() { runtime_->synchronize(stream_.handle()); }

  int device() const { return device_; }  // whose stream, and whose mechanism
  StreamHandle stream() const { return stream_.handle(); }

 protected:
  DeviceRuntime& runtime() const { return *runtime_; }

 private:
  DeviceRuntime* runtime_;
  int device_;
  Stream stream_;
};

// Of a mechanism: a leg that `device` carries; copies are of `bytes` or less. The device must be current.
using MakeLeg = std::function<std::unique_ptr<CopyLeg>(int device, const PeerBuffer& target, const PeerBuffer& source,
                                                       std::size_t bytes)>;

}  // namespace linkgauge
