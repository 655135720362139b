#include "transport/buffered_operation.h"

#include <chrono>
#include <string>
#include <thread>

#include "base/errors.h"
#include "base/now.h"
#include "base/patterns.h"
#include "device/kernel_tuning.h"
#include "mpi/library.h"
#include "transport/agreement.h"

namespace linkgauge {

void CaseOperation::library_barrier() {
  if (context_.mpi != nullptr) {
    context_.mpi->barrier(context_.communicator);
  } else {
    group().barrier(progress());
  }
}

BufferedOperation::BufferedOperation(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                     const LayoutRules& rules)
    : CaseOperation(context, spec),
      transport_(&transport),
      layout_(layout_of(spec.traffic, context.size(), context.rank(), rules)),
      progress_(transport.progress(context)) {}

const Buffer* BufferedOperation::source() const {
  if (layout_.source_bytes == 0) return nullptr;
  return layout_.one_buffer ? &target_ : &source_;
}

const Buffer* BufferedOperation::target() const { return layout_.target_bytes == 0 ? nullptr : &target_; }

void BufferedOperation::prepare() {
  // A rank without memory must not leave the others waiting for it in connect().
  agreeing(group(), progress_, [&] {
    data_.emplace(runtime(), device(), traffic(), ranks());
    if (layout_.target_bytes > 0) {
      const End& end = end_of(spec(), ranks(), rank(), false);
      target_ = transport_->make_buffer(context(), spec(), end.kind, layout_.target_bytes, end.options);
    }
    if (layout_.source_bytes > 0 && !layout_.one_buffer) {
      const End& end = end_of(spec(), ranks(), rank(), true);
      source_ = transport_->make_buffer(context(), spec(), end.kind, layout_.source_bytes, end.options);
    }
  });
  // Kernels are chosen by copying: what they read then has been written, so that a checker of memory finds nothing.
  if (mechanism().transport == "kernel" && kernels_are_tried(runtime())) fill(0);
  connect();
  // A peer that chooses among its kernels writes into our buffers until it is here.
  group().barrier(progress_, Waiting::kSleep);
}

void BufferedOperation::fill(std::uint64_t seed) {
  leave_device();
  // In place what is sent lies where the result will be: it is written last, so that it stands.
  data_->poison(target_, layout_.received, seed);
  for (const Piece& piece : layout_.sent) data_->fill(*source(), piece, layout_.typed, seed);
  enter_device();
}

VerifyResult BufferedOperation::verify(std::uint64_t seed) {
  VerifyResult result;
  check_data(seed, result);
  if (traffic().pattern == Pattern::kBarrier) {
    check_meeting(seed, result);
    check_data(seed, result);
  }
  return result;
}

void BufferedOperation::check_data(std::uint64_t seed, VerifyResult& result) {
  leave_device();
  data_->check(target_, layout_.received, seed, result);
  enter_device();
}

// No rank leaves before the last has come, whichever that is. Ranks of one node have one clock.
void BufferedOperation::check_meeting(std::uint64_t seed, VerifyResult& result) {
  constexpr int kRounds = 3;
  constexpr auto kLate = std::chrono::milliseconds(2);
  for (int round = 0; round < kRounds; ++round) {
    group().barrier(progress_);
    if (rank() == static_cast<int>((seed + static_cast<std::uint64_t>(round)) % static_cast<std::uint64_t>(ranks()))) {
      std::this_thread::sleep_for(kLate);
    }
    const std::int64_t came_ns = now_ns();
    post();
    complete();
    const std::int64_t left_ns = now_ns();
    // Other nodes have other clocks.
    const std::int64_t latest_ns = group().on_node().largest_of(came_ns, progress_);
    const std::int64_t latest = group().on_node().largest_of(came_ns == latest_ns ? rank() : -1, progress_);
    if (latest_ns <= left_ns || !result.ok) continue;
    result.add(1, 0, 0, 0, "left the barrier before rank " + std::to_string(latest) + " came");
  }
}

void BufferedOperation::release() noexcept {
  disconnect();
  group().part(progress_);  // no peer's handle is open when a buffer is freed, and no copy under way
  free_scratch();
  source_ = Buffer();
  target_ = Buffer();
  data_.reset();
}

int BufferedOperation::lane() const {
  const PatternTraits& traits = traits_of(traffic().pattern);
  // One lane a pair: its starter's or sender's time.
  if (traits.side_by_side && moves_as(traffic().pattern) != Pattern::kBidirectional) {
    return keeps_pair_time() ? rank() / 2 : -1;
  }
  switch (traits.timekeeper) {
    case Timekeeper::kStarter:
      return rank() == 0 ? 0 : -1;
    case Timekeeper::kSender:
      return keeps_pair_time() ? 0 : -1;
    case Timekeeper::kRoot:
      return rank() == traffic().root ? 0 : -1;
    case Timekeeper::kLanes:
      return rank();
    case Timekeeper::kSlowest:
      break;
  }
  return 0;
}

// Of two ranks the first, unless events tell the time: they are of a device's queue, and a one-sided copy is queued at
// one end only, which then keeps the time.
bool BufferedOperation::keeps_pair_time() const {
  const bool one_way = moves_as(traffic().pattern) == Pattern::kUnidirectional;
  if (one_way && spec().timing.clock == ClockKind::kEvent && transport_->one_sided()) return !queues().empty();
  return rank() % 2 == 0;
}

}  // namespace linkgauge
