// The options of transport kernel, which NCCL's variant device takes too: who moves the bytes; of allreduce's
// algorithms where the ranks meet; and of one_shot that pushes whether its kernel stays from one operation to the next.
#pragma once

#include <cstdint>
#include <string_view>

#include "transport/memory/routed.h"
#include "transport/options.h"

namespace linkgauge {

// The first of each: the variant does not say.
enum class PullOrPush : std::uint8_t { kEither, kPull, kPush };
enum class Meeting : std::uint8_t { kAnywhere, kHost, kDevice, kLsa };  // kLsa: on the device by NCCL's barriers

struct KernelOptions {
  PullOrPush direction = PullOrPush::kEither;
  Meeting meeting = Meeting::kAnywhere;
  bool resident = false;
  Routing routing = Routing::kNone;

  bool meets_on_device() const { return meeting == Meeting::kDevice || meeting == Meeting::kLsa; }
  // As Variants reads further words.
  bool add(const KernelOptions& more) {
    const auto add_one = [](auto& mine, auto theirs) {
      const auto none = std::remove_reference_t<decltype(mine)>{};
      if (mine != none && theirs != none) return false;
      if (theirs != none) mine = theirs;
      return true;
    };
    return add_one(direction, more.direction) && add_one(meeting, more.meeting) && add_one(resident, more.resident) &&
           add_one(routing, more.routing);
  }
  // Of allreduces alone.
  bool of_allreduce() const { return meeting != Meeting::kAnywhere || resident; }
  // Which side's rank launches a copy: as the variant says, else the initiator. Of two_shot: whether its results are
  // written into the peers' buffers, not read from them.
  bool pushes(Initiator initiator) const {
    return direction == PullOrPush::kEither ? initiator == Initiator::kSender : direction == PullOrPush::kPush;
  }
};

inline constexpr std::string_view kHostBarrier = "host_barrier";
inline constexpr std::string_view kDeviceBarrier = "device_barrier";
inline constexpr std::string_view kResident = "resident";

// Routing's three are last.
inline constexpr VariantWord<KernelOptions> kKernelWords[] = {
    {"pull", {.direction = PullOrPush::kPull}},
    {"push", {.direction = PullOrPush::kPush}},
    {kHostBarrier, {.meeting = Meeting::kHost}},
    {kDeviceBarrier, {.meeting = Meeting::kDevice}},
    {kResident, {.resident = true}},
    {kRoutingWords[0].word, {.routing = kRoutingWords[0].options}},
    {kRoutingWords[1].word, {.routing = kRoutingWords[1].options}},
    {kRoutingWords[2].word, {.routing = kRoutingWords[2].options}},
};

}  // namespace linkgauge
