#include "group/region_group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/errors.h"
#include "base/now.h"
#include "base/waiting.h"
#include "base/words.h"

namespace linkgauge {
namespace {

constexpr std::size_t kLine = 64;  // one cache line a writer: no rank slows another by writing its own word
constexpr std::size_t kSlotBytes = Group::kGatherPieceBytes;  // of an exchange's round; larger messages take more
constexpr std::size_t kFailureBytes = 1024;
constexpr std::size_t kNumbers = 128;  // of a round of largest()
constexpr std::uint32_t kNotAborted = 0;
constexpr std::uint32_t kFailureBeingWritten = 1;
constexpr std::uint32_t kAborted = 2;
// Progress may take some microseconds inside a library: none is called this close to a deadline.
constexpr std::int64_t kQuietBeforeDeadlineNs = 10'000;
constexpr std::int64_t kYieldBeforeDeadlineNs = 200'000;

struct alignas(kLine) Flag {
  std::atomic<std::uint64_t> value{0};
};

}  // namespace

// Where ranks raise each other's numbers; between rounds all are the least that a number can be.
struct RegionGroup::Maxima {
  alignas(kLine) std::array<std::atomic<std::int64_t>, kNumbers> numbers;
  Maxima() { clear(); }
  void clear() {
    for (std::atomic<std::int64_t>& number : numbers) number.store(INT64_MIN, std::memory_order_relaxed);
  }
};

struct RegionGroup::Header {
  alignas(kLine) std::atomic<std::uint32_t> arrived{0};
  alignas(kLine) std::atomic<std::uint32_t> generation{0};
  std::atomic<std::int64_t> deadline_ns{0};  // read right after the generation: same line
  std::array<Maxima, 3> maxima;
  alignas(kLine) std::atomic<std::uint32_t> abort_state{kNotAborted};
  std::array<char, kFailureBytes> failure{};
  alignas(kLine) Sleepers sleepers;
  std::atomic<std::uint32_t> parted{0};  // ranks that have come to leave()
};

struct RegionGroup::Slot {
  alignas(kLine) std::uint64_t total_bytes{0};
  std::array<std::byte, kSlotBytes> bytes{};
};

namespace {

constexpr std::size_t whole_lines(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

std::size_t flag_count(int size) { return static_cast<std::size_t>(size) * size * Group::kFlagChannels; }

}  // namespace

void wait_until(std::int64_t deadline_ns, const Progress& progress) {
  for (std::int64_t left = deadline_ns - now_ns(); left > 0; left = deadline_ns - now_ns()) {
    if (left > kQuietBeforeDeadlineNs && progress) progress();
    if (left > kYieldBeforeDeadlineNs) give_way();
  }
}

Waiter::Waiter(const Progress& progress) : progress_(progress), most_(patient_spins()) {}

void Waiter::pause() {
  ++spins_;
  if (progress_ && spins_ % kSpinsPerProgress == 0) progress_();
  if (spins_ < most_ && !crowded.load(std::memory_order_relaxed)) {
    pause_spin();
    return;
  }
  spins_ = most_;  // stays here, so that the count cannot overflow; progress is called on every turn
  if (progress_) progress_();
  give_way();
}

RegionGroup::RegionGroup(std::shared_ptr<Region> region, std::shared_ptr<RegionMaker> maker, int rank, int size)
    : region_(std::move(region)), maker_(std::move(maker)), rank_(rank), size_(size) {}

std::size_t RegionGroup::region_bytes(int size) {
  return whole_lines(sizeof(Header)) + 2 * static_cast<std::size_t>(size) * sizeof(Slot) +
         flag_count(size) * sizeof(Flag);
}

void RegionGroup::set_up(std::byte* base) {
  // Slots are written before they are read, and flags are zero because the memory is fresh: writing them would take
  // n * n cache lines.
  new (base) Header();
}

RegionGroup::Header& RegionGroup::header() const { return *std::launder(reinterpret_cast<Header*>(region_->base())); }

RegionGroup::Slot& RegionGroup::slot(int rank, std::uint64_t round) const {
  std::byte* slots = region_->base() + whole_lines(sizeof(Header));
  const std::size_t index = static_cast<std::size_t>(rank) + (round % 2) * static_cast<std::size_t>(size_);
  return *reinterpret_cast<Slot*>(slots + index * sizeof(Slot));
}

// All meet; the last to arrive calls `last_one` before the others go on. Who has a progress to make never sleeps.
template <typename LastOne>
void RegionGroup::meet(const Progress& progress, Waiting waiting, const LastOne& last_one) {
  Header& shared = header();
  throw_if_aborted();
  const std::uint32_t generation = shared.generation.load(std::memory_order_acquire);
  if (shared.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(size_)) {
    shared.arrived.store(0, std::memory_order_relaxed);
    last_one();
    shared.sleepers.write_and_wake(shared.generation, generation + 1);
    return;
  }
  const auto met = [&] { return shared.generation.load(std::memory_order_seq_cst) != generation; };
  Waiter waiter(progress);
  for (int spins = 0; !met(); ++spins) {
    // A rank that met and then failed does not undo the meeting: all see it the same way.
    if (aborted() && !met()) throw_if_aborted();
    const bool roomy = !crowded.load(std::memory_order_relaxed);
    const bool spins_on = roomy && (waiting == Waiting::kSpin || spins < Waiter::kSpinsPerProgress);
    if (spins_on || progress) {
      waiter.pause();
      continue;
    }
    shared.sleepers.sleep_until([&] { return met() || aborted(); });
  }
}

void RegionGroup::barrier(const Progress& progress, Waiting waiting) {
  meet(progress, waiting, [] {});
}

void RegionGroup::largest(std::span<std::int64_t> numbers, const Progress& progress) {
  // Three in turn: while one is read, the next may be written, and the one after is cleared by the last to arrive, when
  // everyone has read it.
  auto& maxima = header().maxima;
  for (std::size_t done = 0; done < numbers.size(); done += kNumbers) {
    const std::span<std::int64_t> piece = numbers.subspan(done, std::min(kNumbers, numbers.size() - done));
    const std::uint64_t round = maxima_++;
    auto& shared = maxima[round % maxima.size()].numbers;
    for (std::size_t i = 0; i < piece.size(); ++i) {
      std::int64_t known = shared[i].load(std::memory_order_relaxed);
      while (known < piece[i] && !shared[i].compare_exchange_weak(known, piece[i], std::memory_order_relaxed)) {
      }
    }
    meet(progress, Waiting::kSleep, [&] { maxima[(round + 2) % maxima.size()].clear(); });
    for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = shared[i].load(std::memory_order_relaxed);
  }
}

std::vector<std::vector<std::byte>> RegionGroup::exchange(const std::vector<std::byte>& mine,
                                                          const Progress& progress) {
  std::vector<std::vector<std::byte>> all(static_cast<std::size_t>(size_));
  std::size_t most = 0;
  std::size_t offset = 0;
  do {
    // Two slots in turn: one meeting a round is enough, as a slot is written again only after the next meeting.
    const std::uint64_t round = rounds_++;
    Slot& own = slot(rank_, round);
    own.total_bytes = mine.size();
    if (offset < mine.size()) {
      std::memcpy(own.bytes.data(), mine.data() + offset, std::min(kSlotBytes, mine.size() - offset));
    }
    meet(progress, Waiting::kSleep, [] {});
    for (int rank = 0; rank < size_; ++rank) {
      const Slot& theirs = slot(rank, round);
      std::vector<std::byte>& bytes = all[static_cast<std::size_t>(rank)];
      const std::size_t total = theirs.total_bytes;
      most = std::max(most, total);
      if (offset == 0) bytes.resize(total);
      if (offset < total) std::memcpy(bytes.data() + offset, theirs.bytes.data(), std::min(kSlotBytes, total - offset));
    }
    offset += kSlotBytes;
  } while (offset < most);
  return all;
}

void RegionGroup::gather(std::span<const std::byte> mine, const Take& take) {
  std::exception_ptr refused;  // the others are in the rounds to come, whatever this rank makes of the bytes
  const auto taken = [&](const Slot& from, std::size_t bytes) {
    if (rank_ != 0 || bytes == 0 || refused) return;
    try {
      take({from.bytes.data(), bytes});
    } catch (...) {
      refused = std::current_exception();
    }
  };
  // The first round tells the sizes, and is all where every message fits into its slot.
  std::uint64_t round = rounds_++;
  Slot& own = slot(rank_, round);
  own.total_bytes = mine.size();
  if (mine.size() <= kSlotBytes && !mine.empty()) std::memcpy(own.bytes.data(), mine.data(), mine.size());
  meet({}, Waiting::kSleep, [] {});
  std::size_t most = 0;
  std::size_t total = 0;
  std::size_t begin = 0;  // of this rank's bytes in all ranks'
  for (int rank = 0; rank < size_; ++rank) {
    const std::size_t bytes = slot(rank, round).total_bytes;
    if (rank == rank_) begin = total;
    most = std::max(most, bytes);
    total += bytes;
  }
  if (most <= kSlotBytes) {
    for (int rank = 0; rank_ == 0 && rank < size_; ++rank) {
      const Slot& theirs = slot(rank, round);
      taken(theirs, theirs.total_bytes);
    }
  } else {
    // All slots together are a window on all ranks' bytes, which each fills where its own lie.
    const std::size_t window = static_cast<std::size_t>(size_) * kSlotBytes;
    for (std::size_t offset = 0; offset < total; offset += window) {
      round = rounds_++;
      std::size_t at = std::max(begin, offset);
      const std::size_t end = std::min(begin + mine.size(), offset + window);
      while (at < end) {
        const std::size_t in_window = at - offset;
        const std::size_t place = in_window % kSlotBytes;
        const std::size_t bytes = std::min(kSlotBytes - place, end - at);
        Slot& target = slot(static_cast<int>(in_window / kSlotBytes), round);
        std::memcpy(target.bytes.data() + place, mine.data() + (at - begin), bytes);
        at += bytes;
      }
      meet({}, Waiting::kSleep, [] {});
      const std::size_t filled = std::min(window, total - offset);
      for (std::size_t done = 0; rank_ == 0 && done < filled; done += kSlotBytes) {
        taken(slot(static_cast<int>(done / kSlotBytes), round), std::min(kSlotBytes, filled - done));
      }
    }
  }
  if (refused) std::rethrow_exception(refused);
}

std::unique_ptr<Group> RegionGroup::subset(const std::vector<int>& ranks) {
  check_subset(ranks, size_);
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  const bool member = place != ranks.end();
  const int count = static_cast<int>(ranks.size());
  std::shared_ptr<Region> region = maker_->make(*this, member, rank_ == ranks.front(), count);
  if (!member) return nullptr;
  return std::make_unique<RegionGroup>(std::move(region), maker_, static_cast<int>(place - ranks.begin()), count);
}

std::int64_t RegionGroup::align(std::int64_t lead_ns, std::int64_t offset_ns, const Progress& progress) {
  Header& shared = header();
  meet(progress, Waiting::kSpin, [&] { shared.deadline_ns.store(now_ns() + lead_ns, std::memory_order_relaxed); });
  const std::int64_t scheduled_ns = shared.deadline_ns.load(std::memory_order_relaxed);
  wait_until(scheduled_ns + offset_ns, progress);
  return scheduled_ns;
}

std::atomic<std::uint64_t>* RegionGroup::flag(int source, int target, int channel) {
  if (source < 0 || source >= size_ || target < 0 || target >= size_ || channel < 0 || channel >= kFlagChannels) {
    throw CallerError("no flag from rank " + std::to_string(source) + " to " + std::to_string(target) + ", channel " +
                      std::to_string(channel) + ", in a group of " + std::to_string(size_));
  }
  std::byte* flags = region_->base() + whole_lines(sizeof(Header)) + 2 * static_cast<std::size_t>(size_) * sizeof(Slot);
  const std::size_t index = (static_cast<std::size_t>(source) * size_ + target) * kFlagChannels + channel;
  return &reinterpret_cast<Flag*>(flags)[index].value;
}

bool RegionGroup::aborted() const { return header().abort_state.load(std::memory_order_seq_cst) != kNotAborted; }

void RegionGroup::pass_on(const std::string& failure) noexcept {
  Header& shared = header();
  std::uint32_t expected = kNotAborted;
  // The first to fail is the cause; what follows from it is not recorded.
  if (!shared.abort_state.compare_exchange_strong(expected, kFailureBeingWritten, std::memory_order_acq_rel)) return;
  const std::size_t length = std::min(failure.size(), kFailureBytes - 1);
  std::memcpy(shared.failure.data(), failure.data(), length);
  shared.failure[length] = '\0';
  shared.sleepers.write_and_wake(shared.abort_state, kAborted);
}

void RegionGroup::leave() noexcept {
  if (std::exchange(parted_, true)) return;
  std::atomic<std::uint32_t>& parted = header().parted;
  parted.fetch_add(1, std::memory_order_acq_rel);
  const Progress nothing;
  Waiter waiter(nothing);
  while (parted.load(std::memory_order_acquire) != static_cast<std::uint32_t>(size_)) waiter.pause();
}

std::string RegionGroup::failure() const {
  const Header& shared = header();
  if (!aborted()) return "";
  while (shared.abort_state.load(std::memory_order_acquire) == kFailureBeingWritten) sched_yield();
  return shared.failure.data();
}

void Group::begin_abort(const std::string& reason) noexcept {
  pass_on("rank " + std::to_string(rank()) + " failed: " + reason);
}

void Group::begin_abort(const std::exception& error) noexcept {
  if (dynamic_cast<const PeerError*>(&error) != nullptr) return pass_on(error.what());
  begin_abort(std::string(error.what()));
}

void Group::abort_with(const std::string& reason) noexcept {
  begin_abort(reason);
  finish_telling();
}

void Group::abort_with(const std::exception& error) noexcept {
  begin_abort(error);
  finish_telling();
}

void Group::part(const Progress& progress) noexcept {
  try {
    barrier(progress, Waiting::kSleep);
  } catch (const Error&) {
    leave();
  }
}

void check_subset(const std::vector<int>& ranks, int size) {
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  if (!ranks.empty() && distinct && sorted.front() >= 0 && sorted.back() < size) return;
  throw CallerError("[" + listed(ranks) + "] is not a list of distinct ranks from 0 to " + std::to_string(size - 1));
}

}  // namespace linkgauge
