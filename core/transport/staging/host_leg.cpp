#include "transport/staging/host_leg.h"

#include <atomic>
#include <cstring>

namespace linkgauge {
namespace {

class MpiLeg final : public HostLeg {
 public:
  MpiLeg(const RankContext& context, const Flow& flow, const HostLegEnds& ends, int tag)
      : mpi_(context.mpi),
        communicator_(context.communicator),
        ends_(ends),
        peer_(flow.peer_of(context.rank())),
        tag_(tag),
        acknowledgement_(mpi_->requests(2, RequestKind::kReceives)) {
    for (std::uint64_t slot = 0; slot < ends.slots; ++slot) {
      sends_.push_back(mpi_->requests(1));
      receives_.push_back(mpi_->requests(1, RequestKind::kReceives));
    }
  }

  void send(std::uint64_t chunk, std::size_t bytes) override {
    sends_[slot_of(chunk)]->isend(ends_.source_slots + slot_of(chunk) * ends_.slot_bytes, bytes, peer_, tag_,
                                  communicator_);
  }
  bool sent(std::uint64_t chunk) override { return sends_[slot_of(chunk)]->test_all(); }
  void expect(std::uint64_t chunk, std::size_t bytes) override {
    receives_[slot_of(chunk)]->irecv(ends_.target_slots + slot_of(chunk) * ends_.slot_bytes, bytes, peer_, tag_,
                                     communicator_);
  }
  bool received(std::uint64_t chunk) override { return receives_[slot_of(chunk)]->test_all(); }
  void acknowledge() override { mpi_->send(&nothing_, 0, peer_, tag_ + 1, communicator_); }
  void expect_acknowledgement() override { acknowledgement_->irecv(&nothing_, 0, peer_, tag_ + 1, communicator_); }
  bool acknowledged() override { return acknowledgement_->test_all(); }

 private:
  std::size_t slot_of(std::uint64_t chunk) const { return static_cast<std::size_t>(chunk % ends_.slots); }

  MpiLibrary* mpi_;
  std::uint64_t communicator_;
  HostLegEnds ends_;
  int peer_;
  int tag_;
  char nothing_ = 0;
  std::unique_ptr<MpiRequests> acknowledgement_;
  std::vector<std::unique_ptr<MpiRequests>> sends_;
  std::vector<std::unique_ptr<MpiRequests>> receives_;
};

// `ready` counts chunks that lie in the source's slots; `done` counts chunks that the target has copied out, and in its
// upper bits the acknowledgements, since a flow has no third counter.
class MemcpyLeg final : public HostLeg {
 public:
  MemcpyLeg(const FlowFlags& flags, const HostLegEnds& ends, const std::byte* peer_slots)
      : flags_(flags), ends_(ends), peer_slots_(peer_slots) {
    if (flags_.ready == nullptr) {  // a rank with itself
      flags_.ready = &own_ready_;
      flags_.done = &own_done_;
    }
  }

  void send(std::uint64_t chunk, std::size_t) override {
    flags_.ready->store(flags_.ready_base + chunk + 1, std::memory_order_release);
  }
  bool sent(std::uint64_t chunk) override { return (done() & kChunks) > chunk; }
  void expect(std::uint64_t chunk, std::size_t bytes) override { expected_[chunk % kMostSlots] = bytes; }
  bool received(std::uint64_t chunk) override {
    if (flags_.ready->load(std::memory_order_acquire) - flags_.ready_base <= chunk) return false;
    const std::size_t place = static_cast<std::size_t>(chunk % ends_.slots) * ends_.slot_bytes;
    std::memcpy(ends_.target_slots + place, peer_slots_ + place, expected_[chunk % kMostSlots]);
    flags_.done->fetch_add(1, std::memory_order_release);
    return true;
  }
  void acknowledge() override { flags_.done->fetch_add(kAcknowledgement, std::memory_order_release); }
  void expect_acknowledgement() override { ++acknowledgements_; }
  bool acknowledged() override { return done() / kAcknowledgement >= acknowledgements_; }

 private:
  static constexpr std::uint64_t kMostSlots = 16;
  static constexpr std::uint64_t kAcknowledgement = std::uint64_t{1} << 40;
  static constexpr std::uint64_t kChunks = kAcknowledgement - 1;
  std::uint64_t done() const { return flags_.done->load(std::memory_order_acquire) - flags_.done_base; }

  FlowFlags flags_;
  HostLegEnds ends_;
  const std::byte* peer_slots_;
  std::size_t expected_[kMostSlots] = {};
  std::uint64_t acknowledgements_ = 0;
  std::atomic<std::uint64_t> own_ready_{0};
  std::atomic<std::uint64_t> own_done_{0};
};

}  // namespace

std::unique_ptr<HostLeg> make_mpi_leg(const RankContext& context, const Flow& flow, const HostLegEnds& ends, int tag) {
  return std::make_unique<MpiLeg>(context, flow, ends, tag);
}

std::unique_ptr<HostLeg> make_memcpy_leg(const FlowFlags& flags, const HostLegEnds& ends, const std::byte* peer_slots) {
  return std::make_unique<MemcpyLeg>(flags, ends, peer_slots);
}

}  // namespace linkgauge
