#include "transport/net/worker.h"

#include <algorithm>

#include "base/errors.h"
#include "base/wire.h"
#include "transport/agreement.h"

namespace linkgauge::nic {

MemoryType memory_type_of(const DeviceRuntime& runtime, MemoryKind kind) {
  const bool managed = kind == MemoryKind::kManaged;
  if ((kind != MemoryKind::kDevice && !managed) || runtime.name() == "host") return MemoryType::kHost;
  if (runtime.name() == "cuda") return managed ? MemoryType::kCudaManaged : MemoryType::kCuda;
  if (runtime.name() == "hip") return managed ? MemoryType::kRocmManaged : MemoryType::kRocm;
  throw Unsupported("UCX and libfabric know no " + std::string(to_string(kind)) + " memory of " +
                    std::string(runtime.name()) + " devices; use pinned memory");
}

Link::Link(Worker& worker, const Group& group) : worker_(&worker), group_(&group), tally_(worker.tally()) {}

Link::~Link() {
  if (tally_->under_way != 0) worker_->abandon();
  worker_->give_back(tally_);
}

void Link::wait(const char* what) {
  worker_->drive_until(*group_, [this] { return tally_->under_way == 0; });
  if (tally_->failed != 0) [[unlikely]] {
    worker_->fail(tally_->failed, what);
  }
}

Worker::Meeting Worker::meet(Group& group, const std::vector<int>& peers) {
  retired_.clear();
  const Progress progress = [this] { (void)this->progress(); };
  Meeting met;
  std::vector<std::string> addresses;
  for (const Bytes& theirs : group.exchange(WireWriter().value(turn_).rest(address_).message(), progress)) {
    WireReader reader(theirs);
    met.turn = std::max(met.turn, reader.value<std::uint32_t>());
    addresses.push_back(text_of(reader.rest()));
  }
  turn_ = ++met.turn;
  std::string reason;
  for (const int peer : peers) {
    const std::string& address = addresses[static_cast<std::size_t>(peer)];
    auto known = known_.find(address);
    if (known == known_.end()) {
      Peer made = 0;
      if (const std::string why = connect(address, &made); !why.empty()) {
        reason = "no way to rank " + std::to_string(peer) + ": " + why;
        continue;
      }
      known = known_.emplace(address, made).first;
    }
    met.peers[peer] = known->second;
  }
  agree_or_throw(group, reason, progress);
  return met;
}

Tally* Worker::tally() {
  if (free_tallies_.empty()) free_tallies_.push_back(&tallies_.emplace_back());
  Tally* const taken = free_tallies_.back();
  free_tallies_.pop_back();
  *taken = {};
  return taken;
}

void Worker::give_back(Tally* tally) {
  if (tally->under_way == 0) free_tallies_.push_back(tally);
}

}  // namespace linkgauge::nic
