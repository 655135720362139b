// Ranks as processes, of which some pretend to be on other nodes: what MPI is otherwise between them, pipes are here.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/wire.h"
#include "group/group.h"
#include "group/node_link.h"
#include "group/region_group.h"

namespace linkgauge {

// A pipe for each ordered pair of ranks, at `source * ranks + target`, ends as pipe() gives them. Each message has its
// tag and size in front, since several tags share a pipe.
class PipeLink final : public NodeLink {
 public:
  PipeLink(const std::vector<std::pair<int, int>>& pipes, int rank, int ranks)
      : pipes_(pipes), rank_(rank), ranks_(ranks), to_go_(static_cast<std::size_t>(ranks)) {
    for (const auto& [reading, writing] : pipes) {
      for (const int end : {reading, writing}) fcntl(end, F_SETFL, O_NONBLOCK);
    }
  }
  std::unique_ptr<NodeTransfer> transfer(int tag) override { return std::make_unique<Transfer>(*this, tag); }

 private:
  struct Head {
    std::int64_t tag;
    std::uint64_t bytes;
  };
  class Transfer final : public NodeTransfer {
   public:
    Transfer(PipeLink& link, int tag) : link_(link), tag_(tag) {}
    void begin(int to, std::span<const std::byte> sent, int from, std::size_t expected) override {
      const Bytes message = WireWriter().value(Head{tag_, sent.size()}).rest(sent).message();
      Bytes& to_go = link_.to_go_[static_cast<std::size_t>(to)];
      to_go.insert(to_go.end(), message.begin(), message.end());
      to_ = to;
      from_ = from;
      expected_ = expected;
    }
    bool done() override {
      link_.move(from_);
      std::deque<Bytes>& come = link_.come_[{from_, tag_}];
      if (!link_.to_go_[static_cast<std::size_t>(to_)].empty() || come.empty()) return false;
      received_ = std::move(come.front());
      come.pop_front();
      // Whoever is at another meeting has sent something else.
      if (received_.size() != expected_) throw std::runtime_error("ranks are at different meetings");
      return true;
    }
    std::span<const std::byte> received() const override { return received_; }

   private:
    PipeLink& link_;
    std::int64_t tag_;
    int to_ = 0;
    int from_ = 0;
    std::size_t expected_ = 0;
    Bytes received_;
  };

  // As many bytes as the pipes take and `from` has sent.
  void move(int from) {
    for (int to = 0; to < ranks_; ++to) {
      Bytes& to_go = to_go_[static_cast<std::size_t>(to)];
      if (to_go.empty()) continue;
      const ssize_t sent = ::write(pipe_of(rank_, to).second, to_go.data(), to_go.size());
      if (sent > 0) to_go.erase(to_go.begin(), to_go.begin() + sent);
    }
    Bytes& coming = coming_[from];
    std::array<std::byte, 4096> piece;
    const ssize_t got = ::read(pipe_of(from, rank_).first, piece.data(), piece.size());
    if (got > 0) coming.insert(coming.end(), piece.begin(), piece.begin() + got);
    if (coming.size() < sizeof(Head)) return;
    const Head head = WireReader(coming).value<Head>();
    const std::size_t whole = sizeof head + head.bytes;
    if (coming.size() < whole) return;
    const auto end = coming.begin() + static_cast<std::ptrdiff_t>(whole);
    come_[{from, head.tag}].emplace_back(coming.begin() + sizeof head, end);
    coming.erase(coming.begin(), end);
  }
  std::pair<int, int> pipe_of(int from, int to) const { return pipes_[static_cast<std::size_t>(from * ranks_ + to)]; }

  std::vector<std::pair<int, int>> pipes_;
  int rank_;
  int ranks_;
  std::vector<Bytes> to_go_;                                        // by target
  std::map<int, Bytes> coming_;                                     // by source
  std::map<std::pair<int, std::int64_t>, std::deque<Bytes>> come_;  // by source and tag
};

// Runs `body` as rank r of `node_of_rank.size()` processes; true when every one of them ended well.
class Processes {
 public:
  explicit Processes(std::vector<int> node_of_rank, const std::string& parent = "/dev/shm")
      : node_of_rank_(std::move(node_of_rank)) {
    std::string name = parent + "/linkgauge-test-XXXXXX";
    folder_ = mkdtemp(name.data());
    const std::size_t size = node_of_rank_.size();
    for (std::size_t i = 0; i < size * size; ++i) {
      int ends[2];
      EXPECT_EQ(pipe(ends), 0);
      pipes_.push_back({ends[0], ends[1]});
    }
  }
  ~Processes() {
    for (const auto& [reading, writing] : pipes_) {
      close(reading);
      close(writing);
    }
    std::filesystem::remove_all(folder_);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // The steady clock of node n is to be ahead of this machine's by shifts[n], in nanoseconds.
  void shift_clocks(std::vector<std::int64_t> shifts) { shifts_ = std::move(shifts); }
  static constexpr int kNoTimeNamespace = 77;

  std::vector<int> run(const std::function<void(Group&)>& body) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < static_cast<int>(node_of_rank_.size()); ++rank) {
      const pid_t child = fork();
      if (child == 0) _exit(shifts_.empty() ? play(rank, body) : play_shifted(rank, body));
      children.push_back(child);
    }
    std::vector<int> statuses;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    leftovers_ = static_cast<int>(std::distance(std::filesystem::directory_iterator(folder_), {}));
    return statuses;
  }
  int leftovers() const { return leftovers_; }

 private:
  // Only the children of the process that makes a time namespace live in it.
  int play_shifted(int rank, const std::function<void(Group&)>& body) {
    constexpr std::int64_t kSecond = 1'000'000'000;
    const std::int64_t shift = shifts_[static_cast<std::size_t>(node_of_rank_[static_cast<std::size_t>(rank)])];
    const std::int64_t part = ((shift % kSecond) + kSecond) % kSecond;
    if (unshare(CLONE_NEWTIME) != 0) return kNoTimeNamespace;
    FILE* offsets = fopen("/proc/self/timens_offsets", "w");
    if (offsets == nullptr) return kNoTimeNamespace;
    fprintf(offsets, "monotonic %lld %lld\n", static_cast<long long>((shift - part) / kSecond),
            static_cast<long long>(part));
    if (fclose(offsets) != 0) return kNoTimeNamespace;
    const pid_t child = fork();
    if (child == 0) _exit(play(rank, body));
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  int play(int rank, const std::function<void(Group&)>& body) {
    ProcessGroupOptions options;
    options.rank = rank;
    options.node_of_rank = node_of_rank_;
    options.segment_path = folder_ + "/segment";
    options.link = std::make_shared<PipeLink>(pipes_, rank, static_cast<int>(node_of_rank_.size()));
    try {
      body(*make_process_group(options));
      return 0;
    } catch (const PeerError&) {
      return 3;
    } catch (const std::exception& error) {
      fprintf(stderr, "rank %d: %s\n", rank, error.what());
      return 1;
    }
  }

  std::vector<int> node_of_rank_;
  std::string folder_;
  std::vector<std::pair<int, int>> pipes_;
  std::vector<std::int64_t> shifts_;
  int leftovers_ = -1;
};

// This process' group segment, whose file loses its name once all have it, not its descriptor.
inline struct stat segment_facts() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    struct stat facts {};
    if (target.find("/segment") != std::string::npos && stat(entry.path().c_str(), &facts) == 0) return facts;
  }
  throw std::runtime_error("no segment is open");
}

// While it lives, this process' node has shared memory for so many more groups of `ranks` ranks each, and no others.
class MemoryForGroups {
 public:
  explicit MemoryForGroups(int groups, int ranks = 1) {
    constexpr std::size_t kPage = 65536;  // as core/group/process_group.cpp has it
    const std::size_t each = (RegionGroup::region_bytes(ranks) + 64 + kPage - 1) / kPage * kPage;
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(segment_facts().st_size) + static_cast<std::size_t>(groups) * each;
    signal(SIGXFSZ, SIG_IGN);  // a call that would pass the limit fails then
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~MemoryForGroups() { setrlimit(RLIMIT_FSIZE, &before_); }
  MemoryForGroups(const MemoryForGroups&) = delete;
  MemoryForGroups& operator=(const MemoryForGroups&) = delete;

 private:
  rlimit before_{};
};

}  // namespace linkgauge
