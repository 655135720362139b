// An MPI library that has communicators and nothing else: what a session keeps of them, without a launch.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "mpi/library.h"

namespace linkgauge {

class FakeMpi final : public MpiLibrary {
 public:
  explicit FakeMpi(int ranks) : ranks_(ranks) {}

  int splits() const { return splits_; }
  bool lives(std::uint64_t communicator) const { return live_.contains(communicator); }

  const std::string& path() const override { return name_; }
  const std::string& version() const override { return name_; }
  std::uint64_t world() const override { return kWorld; }
  std::string why_not_size(std::size_t) const override { return ""; }
  std::string why_not_reduction(Datatype, ReduceOp, std::size_t) const override { return ""; }
  bool takes_device_pointers(std::string_view) const override { return false; }
  // Those that were asked for last; refuses what `refused` names.
  std::string settle(const std::string& settings) override {
    settled = settings;
    return !refused.empty() && settings.find(refused) != std::string::npos ? "no one changes " + refused : "";
  }
  std::string settled;
  std::string refused;

  int rank(std::uint64_t) override { return 0; }
  std::uint64_t comm_split(std::uint64_t, int color, int) override {
    ++splits_;
    if (color < 0) return 0;
    live_.insert(++last_);
    return last_;
  }
  void comm_free(std::uint64_t communicator) override {
    if (live_.erase(communicator) == 0) throw CallerError("a communicator is freed twice");
  }

  void send(const void*, std::size_t, int, int, std::uint64_t) override { refuse(); }
  void recv(void*, std::size_t, int, int, std::uint64_t) override { refuse(); }
  std::unique_ptr<MpiRequests> requests(int, RequestKind) override { refuse(); }
  void progress(std::uint64_t) override {}
  void barrier(std::uint64_t, MpiRequests*) override { refuse(); }
  void broadcast(void*, std::size_t, int, std::uint64_t, MpiRequests*) override { refuse(); }
  void allgather(const void*, void*, std::size_t, std::uint64_t, MpiRequests*) override { refuse(); }
  void gather(const void*, void*, std::size_t, int, std::uint64_t, MpiRequests*) override { refuse(); }
  void scatter(const void*, void*, std::size_t, int, std::uint64_t, MpiRequests*) override { refuse(); }
  void alltoall(const void*, void*, std::size_t, std::uint64_t, MpiRequests*) override { refuse(); }
  void alltoallv(const void*, void*, const AlltoallvCounts&, std::uint64_t, std::uint64_t, MpiRequests*) override {
    refuse();
  }
  void neighbor_alltoallv(const void*, void*, const AlltoallvCounts&, std::uint64_t, std::uint64_t,
                          MpiRequests*) override {
    refuse();
  }
  std::uint64_t neighbors(std::uint64_t, const std::vector<int>&, const std::vector<int>&) override { refuse(); }
  std::uint64_t contiguous_type(std::size_t) override { refuse(); }
  std::uint64_t region_type(const HaloRegion&) override { refuse(); }
  void type_free(std::uint64_t) override { refuse(); }
  void reduce(const void*, void*, std::size_t, Datatype, ReduceOp, int, std::uint64_t, MpiRequests*) override {
    refuse();
  }
  void allreduce(const void*, void*, std::size_t, Datatype, ReduceOp, std::uint64_t, MpiRequests*) override {
    refuse();
  }
  void reduce_scatter_block(const void*, void*, std::size_t, Datatype, ReduceOp, std::uint64_t, MpiRequests*) override {
    refuse();
  }
  std::uint64_t win_create(void*, std::size_t, std::uint64_t) override { refuse(); }
  void win_free(std::uint64_t) override { refuse(); }
  void put(const void*, std::size_t, int, std::size_t, std::uint64_t) override { refuse(); }
  void get(void*, std::size_t, int, std::size_t, std::uint64_t) override { refuse(); }
  void flush(int, std::uint64_t) override { refuse(); }
  void win_sync(std::uint64_t) override { refuse(); }

 private:
  static constexpr std::uint64_t kWorld = 1;
  [[noreturn]] static void refuse() { throw CallerError("the pretended MPI library moves no data"); }

  std::string name_ = "fake";
  int ranks_;
  int splits_ = 0;
  std::uint64_t last_ = kWorld;
  std::set<std::uint64_t> live_{kWorld};
};

}  // namespace linkgauge
