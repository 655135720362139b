// One way from a buffer to another, carried by one device: what the one-sided transports' channels are made of.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "base/not_copied.h"
#include "device/kernel_tuning.h"
#include "transport/peer_memory.h"

namespace linkgauge {

// Host devices have one kernel: nothing was chosen there.
inline void tell_choice(const RankContext& context, const CopyVariant& variant) {
  if (!kernels_are_tried(*context.runtime)) return;
  context.choose("kernel", variant.kernel);
  context.choose("grid", variant.shape.grid());
}

// A stream of `device` for copies of this rank: one of its own while there are fewer than the device has for a rank's
// copies (DeviceRuntime::most_copy_streams), else the one that the fewest share. Copies wait for nothing but what was
// queued before them, so that none keeps another from ending. What is queued ends before it goes.
class CopyStream {
 public:
  CopyStream() = default;
  CopyStream(const RankContext& context, int device);
  CopyStream(CopyStream&& other) noexcept { *this = std::move(other); }
  CopyStream& operator=(CopyStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;
  ~CopyStream();

  StreamHandle handle() const { return stream_->handle(); }
  void synchronize() { stream_->synchronize(); }

 private:
  std::shared_ptr<Stream> stream_;
};

class CopyLeg : NotCopied {
 public:
  CopyLeg(const RankContext& context, int device)
      : runtime_(context.runtime), device_(device), stream_(context, device) {}
  virtual ~CopyLeg() = default;

  // Queues a copy between places of the two buffers that the leg was made for. Its device must be current.
  virtual void copy(void* target, const void* source, std::size_t bytes) = 0;
  void synchronize() { stream_.synchronize(); }

  int device() const { return device_; }  // whose stream, and whose mechanism
  StreamHandle stream() const { return stream_.handle(); }

 protected:
  DeviceRuntime& runtime() const { return *runtime_; }

 private:
  DeviceRuntime* runtime_;
  int device_;
  CopyStream stream_;
};

// Of a mechanism: a leg that `device` carries; copies are of `bytes` or less. The device must be current.
using MakeLeg = std::function<std::unique_ptr<CopyLeg>(int device, const PeerBuffer& target, const PeerBuffer& source,
                                                       std::size_t bytes)>;

}  // namespace linkgauge
