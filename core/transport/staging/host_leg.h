// The middle of a staged transfer: how a slot of host memory at the source becomes a slot of host memory at the target.
// Each end has `slots` slots and uses them in turn; chunk number k of a flow lies in slot k % slots at both ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "mpi/library.h"
#include "transport/one_sided.h"
#include "transport/transport.h"

namespace linkgauge {

class HostLeg {
 public:
  virtual ~HostLeg() = default;
  // At the source. The slot must not be written before sent() says so.
  virtual void send(std::uint64_t chunk, std::size_t bytes) = 0;
  virtual bool sent(std::uint64_t chunk) = 0;
  // At the target. The slot must not be read before received() says so.
  virtual void expect(std::uint64_t chunk, std::size_t bytes) = 0;
  virtual bool received(std::uint64_t chunk) = 0;
  // Remote completion: the target tells once per complete(), the source looks for it.
  virtual void acknowledge() = 0;
  virtual void expect_acknowledgement() = 0;
  virtual bool acknowledged() = 0;
};

struct HostLegEnds {
  bool source = false;  // this rank is
  bool target = false;
  std::byte* source_slots = nullptr;  // this rank's
  std::byte* target_slots = nullptr;
  std::size_t slot_bytes = 0;
  std::uint64_t slots = 1;
};

// Each chunk is a message of the MPI library.
std::unique_ptr<HostLeg> make_mpi_leg(const RankContext& context, const Flow& flow, const HostLegEnds& ends, int tag);
// The target's rank copies each chunk out of the source's slot, which it reaches through `peer_slots`.
std::unique_ptr<HostLeg> make_memcpy_leg(const FlowFlags& flags, const HostLegEnds& ends, const std::byte* peer_slots);

}  // namespace linkgauge
