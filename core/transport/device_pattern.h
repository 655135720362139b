// The part that every operation on a rank's own device shares. All ranks start together; each keeps the time of its own
// lane.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/errors.h"
#include "transport/agreement.h"
#include "transport/data_check.h"
#include "transport/operation.h"

namespace linkgauge {

// Of what is so short that a launch would hide it: how often one kernel does it, over which the launch is spread.
inline constexpr std::uint64_t kRoundsOfLaunch = 1000;

class DevicePattern : public CaseOperation {
 public:
  using CaseOperation::CaseOperation;

  void prepare() final {
    agreeing(group(), {}, [&] {
      data_.emplace(runtime(), device(), traffic(), 1);
      stream_ = Stream(runtime(), device());
      allocate();
    });
    connect();
  }
  void complete() override { stream_.synchronize(); }
  // What is queued ends first: it touches the buffers, and a peer's.
  void release() noexcept final {
    end_queues();
    stream_ = Stream();
    disconnect();
    free_buffers();
    data_.reset();
  }
  int lane() const override { return rank(); }
  Progress progress() const final { return {}; }
  std::vector<DeviceQueue> queues() const override { return {{stream_.handle(), device()}}; }
  void library_barrier() final { group().barrier({}); }

 protected:
  virtual void allocate() = 0;
  virtual void connect() {}              // collective, once the buffers of all ranks are there
  virtual void end_queues() noexcept {}  // streams of the operation's own
  virtual void disconnect() noexcept {}  // before any of the buffers goes
  virtual void free_buffers() noexcept = 0;
  DataCheck& data() { return *data_; }
  StreamHandle stream() const { return stream_.handle(); }
  Buffer make(const End& end) { return Buffer(runtime(), device(), end.kind, traffic().bytes(), end.options); }

 private:
  std::optional<DataCheck> data_;
  Stream stream_;
};

}  // namespace linkgauge
