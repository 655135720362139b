// The part that every operation between ranks shares: buffers by the pattern's layout, data, checks, lanes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "traffic/layout.h"
#include "transport/data_check.h"
#include "transport/operation.h"

namespace linkgauge {

class BufferedOperation : public Operation {
 public:
  void prepare() final;
  void fill(std::uint64_t seed) final;
  VerifyResult verify(std::uint64_t seed) final;
  void release() noexcept final;
  int lane() const override;
  Progress progress() const override { return progress_; }
  int commands_per_post() const override { return spec_.traffic.window; }
  void library_barrier() override;

 protected:
  BufferedOperation(Transport& transport, const RankContext& context, const CaseSpec& spec,
                    const LayoutRules& rules = {});

  // Once the buffers are there; collective.
  virtual void connect() = 0;
  // Before the buffers go.
  virtual void disconnect() noexcept = 0;
  // Of what stays on the device from one operation to the next: it leaves while data are written or checked, whose
  // calls may wait for all that runs there.
  virtual void leave_device() {}
  virtual void enter_device() {}
  // Buffers of the operation's own, once no peer holds them open.
  virtual void free_scratch() noexcept {}

  Transport& transport() const { return *transport_; }
  const RankContext& context() const { return context_; }
  const CaseSpec& spec() const { return spec_; }
  const Traffic& traffic() const { return spec_.traffic; }
  const Mechanism& mechanism() const { return spec_.mechanism; }
  const Layout& layout() const { return layout_; }
  Group& group() const { return *context_.group; }
  DeviceRuntime& runtime() const { return *context_.runtime; }
  int rank() const { return context_.rank(); }
  int ranks() const { return context_.size(); }
  // nullptr where this rank sends or receives nothing. In place both are one buffer.
  const Buffer* source() const;
  const Buffer* target() const;

 private:
  bool keeps_pair_time() const;
  void check_data(std::uint64_t seed, VerifyResult& result);
  void check_meeting(std::uint64_t seed, VerifyResult& result);

  Transport* transport_;
  RankContext context_;
  CaseSpec spec_;
  Layout layout_;
  Progress progress_;
  std::optional<DataCheck> data_;
  Buffer source_;
  Buffer target_;
};

}  // namespace linkgauge
