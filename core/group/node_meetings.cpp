#include "group/node_meetings.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/now.h"

namespace linkgauge {
namespace {

// Nearly every message is this short, and then known after the rounds in which the nodes say how long theirs are.
constexpr std::size_t kBeginningBytes = 248;
struct Frame {
  std::uint64_t bytes = 0;  // of the whole message
  std::array<std::byte, kBeginningBytes> beginning{};
};

// Looks until it is done. A rank with nothing to do takes no core from those that are measured: it sleeps for a
// sixteenth of what it has waited, by which what it waits for comes late, and a millisecond at most. With a progress to
// make it never sleeps.
template <typename Done>
void wait(const Progress& progress, Waiting waiting, const Done& done) {
  constexpr std::int64_t kAwakeNs = 50'000;
  constexpr std::int64_t kSleepShare = 16;
  constexpr std::int64_t kLongestSleepNs = 1'000'000;
  const bool sleeps = waiting == Waiting::kSleep && !progress;
  const std::int64_t begin_ns = sleeps ? now_ns() : 0;
  Waiter waiter(progress);
  while (!done()) {
    const std::int64_t waited_ns = sleeps ? now_ns() - begin_ns : 0;
    if (waited_ns > kAwakeNs) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(waited_ns / kSleepShare, kLongestSleepNs)));
    } else {
      waiter.pause();
    }
  }
}

}  // namespace

NodeMeetings::NodeMeetings(NodeLink& link, std::int64_t group, std::vector<int> leaders, int node)
    : leaders_(std::move(leaders)), node_(node), transfer_(link.transfer(static_cast<int>(group % NodeLink::kTags))) {}

void NodeMeetings::largest(std::span<std::int64_t> numbers, const Progress& progress, Waiting waiting) {
  const Bytes found = meet({.heard = to_bytes(numbers.data(), numbers.size())}, progress, waiting);
  std::memcpy(numbers.data(), found.data(), found.size());
}

std::vector<Bytes> NodeMeetings::all(std::span<const std::byte> mine, const Progress& progress) {
  const std::size_t nodes = leaders_.size();
  const auto place = [&](std::size_t distance) {
    return static_cast<std::size_t>(before(node_, static_cast<int>(distance)));
  };
  Frame frame{.bytes = mine.size()};
  std::copy_n(mine.begin(), std::min(mine.size(), kBeginningBytes), frame.beginning.begin());
  const Bytes framed = meet({.heard = to_bytes(frame), .sizes = std::vector<std::size_t>(nodes, sizeof frame)},
                            progress, Waiting::kSpin);
  const std::vector<Frame> frames = values_of<Frame>(framed);
  std::vector<std::size_t> sizes(nodes);
  for (std::size_t i = 0; i < nodes; ++i) sizes[place(i)] = frames[i].bytes;
  std::vector<Bytes> messages(nodes);
  if (*std::max_element(sizes.begin(), sizes.end()) <= kBeginningBytes) {
    for (std::size_t i = 0; i < nodes; ++i) {
      const auto begin = frames[i].beginning.begin();
      messages[place(i)].assign(begin, begin + static_cast<std::ptrdiff_t>(frames[i].bytes));
    }
    return messages;
  }
  const Bytes whole = meet({.heard = {mine.begin(), mine.end()}, .sizes = sizes}, progress, Waiting::kSpin);
  auto begin = whole.begin();
  for (std::size_t i = 0; i < nodes; ++i) {
    const auto end = begin + static_cast<std::ptrdiff_t>(sizes[place(i)]);
    messages[place(i)].assign(begin, end);
    begin = end;
  }
  return messages;
}

std::span<const std::byte> NodeMeetings::swap(std::span<const std::byte> mine, int other_node) {
  const int other = leaders_[static_cast<std::size_t>(other_node)];
  transfer_->begin(other, mine, other, mine.size());
  wait({}, Waiting::kSpin, [this] { return transfer_->done(); });
  return transfer_->received();
}

// If `progress` throws, the meeting stays under way: the other nodes need this one's later rounds, which come when it
// says that it failed.
Bytes NodeMeetings::meet(Rounds rounds, const Progress& progress, Waiting waiting) {
  const auto over = [this] { return advance(); };
  if (rounds_) wait({}, Waiting::kSpin, over);
  rounds_ = std::move(rounds);
  wait(progress, waiting, over);
  return std::exchange(rounds_, std::nullopt)->heard;
}

// Goes on as far as it can without waiting; whether all rounds are over.
bool NodeMeetings::advance() {
  const int nodes = static_cast<int>(leaders_.size());
  Rounds& now = *rounds_;
  while (true) {
    if (now.under_way) {
      if (!transfer_->done()) return false;
      const std::span<const std::byte> theirs = transfer_->received();
      if (now.sizes.empty()) {
        std::vector<std::int64_t> numbers = values_of<std::int64_t>(now.heard);
        const std::vector<std::int64_t> others = values_of<std::int64_t>(theirs);
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = std::max(numbers[i], others[i]);
        now.heard = to_bytes(numbers.data(), numbers.size());
      } else {
        now.heard.insert(now.heard.end(), theirs.begin(), theirs.end());
      }
      now.under_way = false;
      now.reach *= 2;
    }
    if (now.reach >= nodes) return true;
    const int source = before(node_, now.reach);
    const int target = before(node_, nodes - now.reach);
    const int count = std::min(now.reach, nodes - now.reach);  // of messages
    transfer_->begin(leaders_[static_cast<std::size_t>(target)], std::span(now.heard).first(bytes_of(node_, count)),
                     leaders_[static_cast<std::size_t>(source)], bytes_of(source, count));
    now.under_way = true;
  }
}

// Of what `node` sends of `count` nodes' messages: its own, the one's before it, and so on.
std::size_t NodeMeetings::bytes_of(int node, int count) const {
  if (rounds_->sizes.empty()) return rounds_->heard.size();
  std::size_t bytes = 0;
  for (int i = 0; i < count; ++i) bytes += rounds_->sizes[static_cast<std::size_t>(before(node, i))];
  return bytes;
}

int NodeMeetings::before(int node, int distance) const {
  const int nodes = static_cast<int>(leaders_.size());
  return (node - distance + nodes) % nodes;
}

}  // namespace linkgauge
