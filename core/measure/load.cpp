#include "measure/load.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/waiting.h"
#include "measure/clock.h"

namespace linkgauge {
namespace {

// Long enough that the meeting after each stretch is a hundredth of it, and that a case waits for no more at its end.
constexpr std::int64_t kStretchNs = 10'000'000;
constexpr std::int64_t kAloneNs = 50'000'000;  // a load goes on so long before it is said to be at its rate
constexpr std::size_t kAloneStretches = 3;
constexpr std::int64_t kMostOperations = 1 << 20;  // of one stretch
constexpr auto kLook = std::chrono::microseconds(200);

// What a load's first rank tells the others before each stretch.
struct Order {
  std::int64_t operations = 1;  // 0: rest, of which it says the end
  std::int64_t wanted = kAtRate;
  bool at_rate = false;
  bool aborted = false;
};

void wait_out(std::int64_t when_ns) {
  while (true) {
    const std::int64_t left_ns = when_ns - now_ns();
    if (left_ns <= 0) return;
    // A sleep overruns by some tens of microseconds: the last of it is waited out.
    if (left_ns > 200'000) std::this_thread::sleep_for(std::chrono::nanoseconds(left_ns - 100'000));
  }
}

class LoadRunner {
 public:
  LoadRunner(Operation& operation, Group& group, Group& everyone, const Timing& timing, const Pace& pace, JobLine* line,
             const SamplerSettings& settings)
      : operation_(operation),
        group_(group),
        everyone_(everyone),
        timing_(timing),
        pace_(pace),
        line_(line),
        settings_(settings),
        progress_(operation.progress()) {}

  LoadReport run() {
    try {
      check(Moment::kCheck, "the first operation");
      begin_ns_ = now_ns();
      for (tell(); order_.wanted != kOver && !order_.aborted; tell()) {
        if (order_.wanted % 2 == 0) {
          stretch();
        } else {
          rested_ = true;
        }
        if (line_ != nullptr) plan();
      }
      if (order_.aborted) everyone_.barrier({}, Waiting::kSleep);  // which says why, on every node
      check(Moment::kFinalCheck, "the final operation");
    } catch (const std::exception& error) {
      const bool another_jobs = &everyone_ != &group_ && everyone_.aborted();
      if (!order_.at_rate || another_jobs) throw;
      group_.begin_abort(error);
      if (line_ != nullptr) line_->say(kOver);
      report_.failure = error.what();
    }
    settings_.heartbeat.enter(Moment::kIdle);
    return std::move(report_);
  }

 private:
  void hook(Moment phase, std::int64_t number, bool after) const {
    if (settings_.hook) settings_.hook(phase, number, after);
  }

  void check(Moment moment, const char* which) {
    settings_.heartbeat.enter(moment);
    const std::uint64_t seed = timing_.seed + report_.stretches.size();
    operation_.fill(seed);
    group_.barrier(progress_);  // no rank sends into a buffer that is still being poisoned
    operation_.put_back();
    hook(moment, -1, false);
    operation_.post();
    operation_.complete();
    ++report_.operations_total;
    hook(moment, -1, true);
    group_.barrier(progress_);
    hook(Moment::kVerify, -1, false);
    const VerifyResult mine = operation_.verify(seed);
    const bool all = group_.agree(mine.ok, progress_);
    report_.verified = all && (report_.verified || report_.stretches.empty());
    if (mine.ok || !report_.verify.ok) return;
    report_.verify = mine;
    report_.verify.where = std::string(which) + (mine.where.empty() ? "" : ": ") + mine.where;
  }

  void tell() {
    settings_.heartbeat.enter(Moment::kOthers);
    std::array<std::int64_t, 4> told = {order_.operations, order_.wanted, order_.at_rate ? 1 : 0,
                                        order_.aborted ? 1 : 0};
    if (group_.rank() != 0) told.fill(INT64_MIN);  // the first rank's are the largest
    group_.largest(told, progress_);
    order_ = {told[0], told[1], told[2] != 0, told[3] != 0};
  }

  void stretch() {
    settings_.heartbeat.enter(Moment::kTime);
    const auto number = static_cast<std::int64_t>(report_.stretches.size());
    hook(Moment::kTime, number, false);
    if (pace_.offset_ns > 0 && std::exchange(rested_, false)) wait_out(now_ns() + pace_.offset_ns);
    const std::int64_t burst = pace_.burst > 0 ? pace_.burst : std::max(timing_.batch, 1);
    const std::int64_t start_ns = now_ns();
    for (std::int64_t done = 0; done < order_.operations;) {
      const std::int64_t burst_ns = now_ns();
      const std::int64_t until = std::min(done + burst, order_.operations);
      for (; done < until; ++done) operation_.post();
      operation_.complete();
      rest(burst_ns);
    }
    using When = Stretch::When;
    const When when = !order_.at_rate ? When::kAlone : order_.wanted == kAtRate ? When::kBetween : When::kBeside;
    report_.stretches.push_back({start_ns, now_ns() - start_ns, order_.operations, when});
    report_.operations_total += order_.operations;
    hook(Moment::kTime, number, true);
    settings_.heartbeat.beat();
  }

  void rest(std::int64_t burst_ns) const {
    if (pace_.every_ns > 0) wait_out(burst_ns + pace_.every_ns);
    if (pace_.duty < 1) {
      const std::int64_t ended_ns = now_ns();
      wait_out(ended_ns + static_cast<std::int64_t>(static_cast<double>(ended_ns - burst_ns) * (1 / pace_.duty - 1)));
    }
  }

  // The first rank's: what is wanted next, and how long the next stretch is. While it rests the others wait for it.
  void plan() {
    if (order_.wanted % 2 == 0) {
      const Stretch& last = report_.stretches.back();
      const double each_ns =
          static_cast<double>(std::max<std::int64_t>(last.ns, 1)) / static_cast<double>(last.operations);
      order_.operations =
          std::clamp(static_cast<std::int64_t>(static_cast<double>(kStretchNs) / each_ns),
                     std::max<std::int64_t>(last.operations / 4, 1), std::min(8 * last.operations, kMostOperations));
      order_.at_rate =
          order_.at_rate || (report_.stretches.size() >= kAloneStretches && now_ns() - begin_ns_ >= kAloneNs);
    }
    if (order_.at_rate && said_ < order_.wanted) {
      said_ = order_.wanted;
      line_->say(said_);
    }
    settings_.heartbeat.enter(Moment::kOthers);
    const auto told = [this] {
      order_.wanted = std::max(order_.wanted, line_->heard());
      order_.aborted = everyone_.aborted();
      return order_.wanted != said_ || order_.wanted % 2 == 0 || order_.aborted;
    };
    look_until(told, kLook);
  }

  Operation& operation_;
  Group& group_;
  Group& everyone_;
  const Timing& timing_;
  const Pace& pace_;
  JobLine* line_;
  const SamplerSettings& settings_;
  Progress progress_;
  LoadReport report_;
  Order order_;
  std::int64_t begin_ns_ = 0;
  std::int64_t said_ = -1;
  bool rested_ = true;  // since the last stretch
};

}  // namespace

RankLine::RankLine(Group& everyone, int place, const std::vector<int>& launch_ranks, MpiLibrary* mpi, int tag)
    : said_(everyone.flag(0, place, everyone.rank() == 0 ? 0 : 1)),
      heard_(everyone.flag(0, place, everyone.rank() == 0 ? 1 : 0)),
      mpi_(mpi),
      other_(launch_ranks[static_cast<std::size_t>(everyone.rank() == 0 ? place : 0)]),
      own_tag_(tag + (everyone.rank() == 0 ? 0 : 1)),
      other_tag_(tag + (everyone.rank() == 0 ? 1 : 0)) {
  if (heard_ != nullptr) return;
  receive_ = mpi_->requests(1, RequestKind::kReceives);
  listen();
}

void RankLine::listen() { receive_->irecv(&coming_, sizeof coming_, other_, other_tag_, mpi_->world()); }

void RankLine::say(std::int64_t number) {
  if (said_ != nullptr) {
    said_->store(static_cast<std::uint64_t>(number) + 1, std::memory_order_release);
  } else {
    mpi_->send(&number, sizeof number, other_, own_tag_, mpi_->world());
  }
}

std::int64_t RankLine::heard() {
  if (heard_ != nullptr) return static_cast<std::int64_t>(heard_->load(std::memory_order_acquire) - 1);
  while (last_ != kOver && receive_->test_all()) {
    last_ = coming_;
    if (last_ != kOver) listen();
  }
  return last_;
}

void SocketLine::say(std::int64_t number) {
  static_assert(std::endian::native == std::endian::little);
  // Fewer bytes are under way than any socket holds, so they go at once and whole. Where the other end is gone, heard()
  // says so.
  while (::send(socket_, &number, sizeof number, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

std::int64_t SocketLine::heard() {
  while (last_ != kOver) {
    std::int64_t coming = -1;
    const ssize_t there = ::recv(socket_, &coming, sizeof coming, MSG_PEEK | MSG_DONTWAIT);
    if (there == 0 || (there < 0 && errno != EAGAIN && errno != EINTR)) {
      last_ = kOver;
    } else if (there == sizeof coming) {
      first_ = last_ < 0 ? coming : first_;
      last_ = coming;
      ::recv(socket_, &coming, sizeof coming, MSG_DONTWAIT);
    } else {
      break;
    }
  }
  return last_;
}

LoadReport keep_on(Operation& operation, Group& group, Group& everyone, const Timing& timing, const Pace& pace,
                   JobLine* line, const SamplerSettings& settings) {
  return LoadRunner(operation, group, everyone, timing, pace, line, settings).run();
}

void LoadControl::let(bool go_on) {
  if (go_on && wanted_ == kAtRate) {
    want(2);
  } else if (go_on != (wanted_ % 2 == 0)) {
    want(wanted_ + 1);
  }
}

void LoadControl::want(std::int64_t number) {
  wanted_ = number;
  for (const std::unique_ptr<JobLine>& line : lines_) line->say(number);
  for (const std::unique_ptr<JobLine>& line : lines_) {
    const auto heard = [&] {
      if (line->heard() >= number) return true;
      everyone_.throw_if_aborted();
      return false;
    };
    look_until(heard, kLook);
    if (line->never_at_rate()) {
      throw PeerError("a load that is a launch of its own was over before it was at its rate");
    }
  }
}

void LoadControl::end() noexcept {
  try {
    for (const std::unique_ptr<JobLine>& line : lines_) line->say(kOver);
  } catch (const std::exception&) {
    return;  // the connection is gone, as the parent process sees
  }
}

}  // namespace linkgauge
