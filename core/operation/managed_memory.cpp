#include "operation/managed_memory.h"

#include <unistd.h>

#include "base/patterns.h"

namespace linkgauge {

namespace {

// What a kernel's touching moves. Copies of the runtime's are made from where the pages are.
bool is_moved_pageable(const DeviceRuntime& runtime, int device, const Mechanism& by, MemoryKind kind) {
  return kind == MemoryKind::kPageable && by.transport == "kernel" && runtime.pageable_migrates(device);
}

// Whether pages that move with each operation can be, as the case is timed. `fetched`: the host touches them at the
// end.
std::string why_not_moved(const Timing& timing, bool fetched, const char* fix) {
  if (timing.cadence == Cadence::kStreaming || timing.cadence == Cadence::kGated) {
    return std::string("pages move in the first operation of a batch only; use cadence isolated, or ") + fix;
  }
  if (fetched && timing.clock == ClockKind::kEvent) {
    return "the host fetches these pages by touching them, which device events do not time; use clock host";
  }
  return "";
}

bool goes_to_host(Pattern pattern) { return pattern != Pattern::kHostToDevice; }

}  // namespace

std::string why_not_managed(const DeviceRuntime& runtime, int device, const CaseSpec& spec) {
  const Mechanism& by = spec.mechanism;
  const bool source = spec.places.source.kind == MemoryKind::kManaged;
  const bool target = spec.places.target.kind == MemoryKind::kManaged;
  if (traits_of(spec.traffic.pattern).crosses_host_link &&
      (is_moved_pageable(runtime, device, by, spec.places.source.kind) ||
       is_moved_pageable(runtime, device, by, spec.places.target.kind))) {
    return why_not_moved(spec.timing, goes_to_host(spec.traffic.pattern), "pinned memory");
  }
  const std::string use = "managed = " + std::string(to_string(by.managed));
  if (!source && !target) {
    return by.managed == ManagedUse::kDefault ? "" : use + " is of managed memory; the case has none";
  }
  if (std::string reason = runtime.why_not_managed(device, by.managed); !reason.empty()) return reason;
  if (!traits_of(spec.traffic.pattern).crosses_host_link) {
    const bool each_time = by.managed == ManagedUse::kPrefetch || by.managed == ManagedUse::kMigrate;
    return each_time ? use + " moves pages in the first operation only here; use host_to_device or device_to_host" : "";
  }
  if (source && target) {
    return std::string(to_string(spec.traffic.pattern)) + " has one end in managed memory, the other is the device's";
  }
  const bool stays = by.managed == ManagedUse::kZeroCopy || !runtime.managed_migrates(device);
  const bool fetched = goes_to_host(spec.traffic.pattern) && by.managed != ManagedUse::kPrefetch;
  return stays ? "" : why_not_moved(spec.timing, fetched, "managed = zero_copy");
}

void ManagedPages::take(DeviceRuntime& runtime, int device, const Buffer& buffer, const Mechanism& by, Way way) {
  const bool managed = buffer.kind() == MemoryKind::kManaged;
  if (!managed && !is_moved_pageable(runtime, device, by, buffer.kind())) return;
  runtime_ = &runtime;
  device_ = device;
  data_ = buffer.data();
  bytes_ = buffer.size();
  use_ = managed ? by.managed : ManagedUse::kDefault;
  way_ = way;
  moves_ = !managed || (use_ != ManagedUse::kZeroCopy && runtime.managed_migrates(device));
  prefetches_ = managed && runtime.why_not_managed(device, ManagedUse::kPrefetch).empty();
  if (managed) runtime.advise_managed(data_, bytes_, device, use_);
}

// One byte a page. A write also ends what read_mostly copied elsewhere.
void ManagedPages::touch(bool write) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto* bytes = static_cast<volatile unsigned char*>(data_);
  for (std::size_t at = 0; at < bytes_; at += page) {
    const unsigned char held = bytes[at];
    if (write) bytes[at] = held;
  }
}

void ManagedPages::put_back(StreamHandle stream) {
  if (runtime_ == nullptr || way_ == Way::kStays) return;
  const bool on_host = way_ == Way::kToDevice || !moves_;
  if (prefetches_ && use_ != ManagedUse::kZeroCopy) {
    runtime_->prefetch_managed(data_, bytes_, on_host ? -1 : device_, stream);
    runtime_->synchronize(stream);
  }
  if (on_host) touch(true);
}

void ManagedPages::before(StreamHandle stream) {
  if (runtime_ == nullptr || use_ != ManagedUse::kPrefetch || way_ != Way::kToDevice) return;
  runtime_->prefetch_managed(data_, bytes_, device_, stream);
}

void ManagedPages::after(StreamHandle stream) {
  if (runtime_ == nullptr || use_ != ManagedUse::kPrefetch || way_ != Way::kToHost) return;
  runtime_->prefetch_managed(data_, bytes_, -1, stream);
}

void ManagedPages::arrive() {
  if (runtime_ == nullptr || way_ != Way::kToHost || !moves_ || use_ == ManagedUse::kPrefetch) return;
  touch(false);
}

}  // namespace linkgauge
