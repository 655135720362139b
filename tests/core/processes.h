// Ranks as processes, of which some pretend to be on other nodes: what MPI is otherwise between them, pipes are here.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "group/group.h"
#include "group/region_group.h"

namespace linkgauge {

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
    options.exchange.all = [this, rank](const std::vector<std::byte>& mine, const std::vector<int>& ranks) {
      return exchange(rank, mine, ranks);
    };
    options.exchange.largest = [this, rank](const std::vector<std::int64_t>& mine, const std::vector<int>& ranks,
                                            Waiting /*waiting*/) {
      std::vector<std::byte> message(mine.size() * sizeof(std::int64_t));
      std::memcpy(message.data(), mine.data(), message.size());
      std::vector<std::int64_t> found = mine;
      for (const std::vector<std::byte>& other : exchange(rank, message, ranks)) {
        std::vector<std::int64_t> theirs(mine.size());
        // Whoever is at another meeting has sent something else.
        if (other.size() != message.size()) throw std::runtime_error("ranks are at different meetings");
        std::memcpy(theirs.data(), other.data(), message.size());
        for (std::size_t i = 0; i < found.size(); ++i) found[i] = std::max(found[i], theirs[i]);
      }
      return found;
    };
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

  // What MPI is otherwise: a pipe for each ordered pair, each message with its size in front.
  std::vector<std::vector<std::byte>> exchange(int rank, const std::vector<std::byte>& mine,
                                               const std::vector<int>& ranks) {
    const std::size_t size = node_of_rank_.size();
    const auto pipe_of = [&](int from, int to) {
      return pipes_[static_cast<std::size_t>(from) * size + static_cast<std::size_t>(to)];
    };
    const std::uint64_t bytes = mine.size();
    std::vector<std::thread> writers;  // a pipe holds 64 KiB: all write while all read
    for (const int peer : ranks) {
      writers.emplace_back([&, peer] {
        const int end = pipe_of(rank, peer).second;
        if (::write(end, &bytes, sizeof bytes) != sizeof bytes) abort();
        for (std::size_t sent = 0; sent < mine.size();)
          sent += static_cast<std::size_t>(::write(end, mine.data() + sent, mine.size() - sent));
      });
    }
    std::vector<std::vector<std::byte>> all;
    for (const int peer : ranks) {
      const int end = pipe_of(peer, rank).first;
      std::uint64_t theirs = 0;
      if (::read(end, &theirs, sizeof theirs) != sizeof theirs) abort();
      std::vector<std::byte> message(theirs);
      for (std::size_t got = 0; got < theirs;)
        got += static_cast<std::size_t>(::read(end, message.data() + got, theirs - got));
      all.push_back(std::move(message));
    }
    for (std::thread& writer : writers) writer.join();
    return all;
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
