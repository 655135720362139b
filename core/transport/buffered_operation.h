// The part that every operation between ranks shares: buffers by the pattern's layout, data, checks, lanes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "traffic/layout.h"
#include "transport/data_check.h"
#include "transport/operation.h"

namespace linkgauge {

class BufferedOperation : public CaseOperation {
 public:
  void prepare() final;
  void fill(std::uint64_t seed) final;
  VerifyResult verify(std::uint64_t seed) final;
  void release() noexcept final;
  int lane() const override;
  Progress progress() const override { return progress_; }
  int commands_per_post() const override { return traffic().window; }

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
  const Layout& layout() const { return layout_; }
  // nullptr where this rank sends or receives nothing. In place both are one buffer.
  const Buffer* source() const;
  const Buffer* target() const;

 private:
  bool keeps_pair_time() const;
  void check_data(std::uint64_t seed, VerifyResult& result);
  void check_meeting(std::uint64_t seed, VerifyResult& result);

  Transport* transport_;
  Layout layout_;
  Progress progress_;
  std::optional<DataCheck> data_;
  Buffer source_;
  Buffer target_;
};

}  // namespace linkgauge
