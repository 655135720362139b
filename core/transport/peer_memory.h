// Buffers of other ranks, made reachable from this one: the pointer itself within a process, an opened handle across
// processes.
#pragma once

#include <memory>
#include <vector>

#include "transport/transport.h"

namespace linkgauge {

struct PeerBuffer {
  void* data = nullptr;          // nullptr: this rank does not need it
  int copy_device = -1;          // where it lies: the device, -1 for the host's
  std::shared_ptr<void> opened;  // keeps an opened handle open; must go before the owner frees the buffer
  std::size_t bytes = 0;         // of the whole buffer

  // What DeviceRuntime::copy_async wants.
  int named_device() const { return opened ? -1 : copy_device; }
};

enum class ExposedEnd : std::uint8_t { kSource, kTarget };

// Collective. Element i: the exposed end's buffer of flows[i], on the rank of the other end (and on the rank that is
// both ends). `device` reaches into it. Throws Unsupported on every rank with the reason when a handle cannot be made
// or opened.
std::vector<PeerBuffer> open_peers(const RankContext& context, const Flows& flows, ExposedEnd end, int device);
// The same, reached by this rank's own device.
std::vector<PeerBuffer> open_peers(const RankContext& context, const Flows& flows, ExposedEnd end);

// Why memory of this kind cannot be reached by other ranks of the case, or "".
std::string why_not_shareable(const RankContext& context, MemoryKind kind);
// Why the case's buffers at the end that peers open (`pushed`: the targets) cannot be shared between processes; "":
// they can.
std::string why_not_shareable(const RankContext& context, const CaseSpec& spec, bool pushed);

}  // namespace linkgauge
