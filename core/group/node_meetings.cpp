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
    : link_(link),
      leaders_(std::move(leaders)),
      node_(node),
      transfer_(link.transfer(static_cast<int>(group % NodeLink::kTags))) {}

NodeMeetings::~NodeMeetings() { std::erase(link_.telling, this); }

void NodeMeetings::largest(std::span<std::int64_t> numbers, const Progress& progress, Waiting waiting) {
  const Bytes found = meet({.heard = to_bytes(numbers.data(), numbers.size())}, progress, waiting);
  std::memcpy(numbers.data(), found.data(), found.size());
}

NodeMeetings::Rounds NodeMeetings::framed(std::span<const std::byte> mine) const {
  Frame frame{.bytes = mine.size()};
  std::copy_n(mine.begin(), std::min(mine.size(), kBeginningBytes), frame.beginning.begin());
  return {.heard = to_bytes(frame), .sizes = std::vector<std::size_t>(leaders_.size(), sizeof frame)};
}

// By node, of what framed() gave.
std::vector<std::size_t> NodeMeetings::sizes_of(const Bytes& frames) const {
  std::vector<std::size_t> sizes(leaders_.size());
  int distance = 0;
  for (const Frame& frame : values_of<Frame>(frames)) {
    sizes[static_cast<std::size_t>(before(node_, distance++))] = frame.bytes;
  }
  return sizes;
}

std::vector<Bytes> NodeMeetings::all(std::span<const std::byte> mine, const Progress& progress) {
  const std::size_t nodes = leaders_.size();
  const auto place = [&](std::size_t distance) {
    return static_cast<std::size_t>(before(node_, static_cast<int>(distance)));
  };
  const Bytes heard = meet(framed(mine), progress, Waiting::kSpin);
  const std::vector<std::size_t> sizes = sizes_of(heard);
  std::vector<Bytes> messages(nodes);
  if (*std::max_element(sizes.begin(), sizes.end()) <= kBeginningBytes) {
    const std::vector<Frame> frames = values_of<Frame>(heard);
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

void NodeMeetings::begin_telling(std::span<const std::int64_t> numbers, std::span<const std::byte> words) {
  numbers_.assign(numbers.begin(), numbers.end());
  words_.assign(words.begin(), words.end());
  next_ = Telling::kNumbers;
  link_.telling.push_back(this);
  tell_on();
}

void NodeMeetings::finish_telling() {
  wait({}, Waiting::kSpin, [this] {
    tell_on();
    return next_ == Telling::kNothing;
  });
}

// Goes on, as far as it can without waiting, with all failures that this rank tells.
void NodeMeetings::tell_on() {
  if (link_.telling.empty()) return;
  for (NodeMeetings* one : link_.telling) one->go_on_telling();
  std::erase_if(link_.telling, [](const NodeMeetings* one) { return one->next_ == Telling::kNothing; });
}

void NodeMeetings::go_on_telling() {
  try {
    while (!rounds_ || advance()) {  // at first also what was under way: the other nodes need its later rounds
      const Bytes heard = rounds_ ? std::move(rounds_->heard) : Bytes{};
      rounds_.reset();
      if (next_ == Telling::kNumbers) {
        rounds_ = Rounds{.heard = to_bytes(numbers_.data(), numbers_.size())};
        next_ = Telling::kSizes;
      } else if (next_ == Telling::kSizes) {
        rounds_ = framed(words_);
        next_ = Telling::kWords;
      } else if (next_ == Telling::kWords) {
        const std::vector<std::size_t> sizes = sizes_of(heard);
        next_ = Telling::kLast;
        if (*std::max_element(sizes.begin(), sizes.end()) > kBeginningBytes) {
          rounds_ = Rounds{.heard = words_, .sizes = sizes};
        }
      } else {
        next_ = Telling::kNothing;
        return;
      }
    }
  } catch (...) {
    next_ = Telling::kNothing;  // the connection is gone as well; the parent processes see it
  }
}

std::span<const std::byte> NodeMeetings::swap(std::span<const std::byte> mine, int other_node) {
  const int other = leaders_[static_cast<std::size_t>(other_node)];
  transfer_->begin(other, mine, other, mine.size());
  wait({}, Waiting::kSpin, [this] {
    tell_on();
    return transfer_->done();
  });
  return transfer_->received();
}

// If `progress` throws, the meeting stays under way: the other nodes need this one's later rounds, which come when it
// says that it failed.
Bytes NodeMeetings::meet(Rounds rounds, const Progress& progress, Waiting waiting) {
  const auto over = [this] {
    tell_on();
    return advance();
  };
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
