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

class DevicePattern : public Operation {
 public:
  DevicePattern(const RankContext& context, const CaseSpec& spec) : context_(context), spec_(spec) {}

  void prepare() final {
    agreeing(*context_.group, {}, [&] {
      data_.emplace(runtime(), device(), spec_.traffic, 1);
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
  int lane() const override { return context_.rank(); }
  Progress progress() const final { return {}; }
  std::vector<DeviceQueue> queues() const override { return {{stream_.handle(), device()}}; }
  void library_barrier() final { context_.group->barrier({}); }

 protected:
  virtual void allocate() = 0;
  virtual void connect() {}              // collective, once the buffers of all ranks are there
  virtual void end_queues() noexcept {}  // streams of the operation's own
  virtual void disconnect() noexcept {}  // before any of the buffers goes
  virtual void free_buffers() noexcept = 0;
  const RankContext& context() const { return context_; }
  DeviceRuntime& runtime() const { return *context_.runtime; }
  int device() const { return context_.device(); }
  int rank() const { return context_.rank(); }
  int ranks() const { return context_.size(); }
  const CaseSpec& spec() const { return spec_; }
  const Traffic& traffic() const { return spec_.traffic; }
  const Mechanism& mechanism() const { return spec_.mechanism; }
  DataCheck& data() { return *data_; }
  StreamHandle stream() const { return stream_.handle(); }
  Buffer make(const End& end) { return Buffer(runtime(), device(), end.kind, spec_.traffic.bytes(), end.options); }
  // For disconnect(): no peer has this rank's memory open when it returns.
  void meet_before_freeing() const noexcept {
    try {
      context_.group->barrier({});
    } catch (const Error&) {  // a peer that failed
      context_.group->leave();
    }
  }

 private:
  RankContext context_;
  CaseSpec spec_;
  std::optional<DataCheck> data_;
  Stream stream_;
};

}  // namespace linkgauge
