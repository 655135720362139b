// The collectives of an application's program on one rank: each has an operation of its own, and the ranks of one that
// not all take part in a group of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "traffic/program.h"
#include "transport/operation.h"
#include "transport/transport.h"

namespace linkgauge {

struct ApplicationCollective {
  std::unique_ptr<Group> group;  // nullptr where this rank is no member
  RankContext context;
  CaseSpec spec;
  std::unique_ptr<Operation> operation;
  bool begun = false;  // and not completed

  void complete() {
    if (!begun) return;
    begun = false;
    operation->complete();
  }
};

class ApplicationCollectives {
 public:
  explicit ApplicationCollectives(const std::string& transport) : transport_(make_transport(transport)) {}

  Transport& transport() const { return *transport_; }
  ApplicationCollective& operator[](std::size_t number) { return all_[number]; }
  auto begin() { return all_.begin(); }
  auto end() { return all_.end(); }

  // Collective, in the program's order on all ranks, be they members or not.
  void prepare(const RankContext& context, const CaseSpec& spec, const Program& program, const Progress& progress);
  // Ranks that wait in a group of a collective's must hear of what fails here too.
  void begin_abort(const std::exception& error);
  void fill(std::uint64_t seed);
  // Adds to `result` the first thing that is wrong, where nothing is yet.
  void verify(std::uint64_t seed, VerifyResult& result);
  void release() noexcept;
  // After release(), on all ranks.
  void free_communicators(const RankContext& context);
  void clear();

 private:
  // What the collectives of some of the ranks share, as a program's process group has one communicator: a library
  // carries out in turn what goes by one, and beside each other what goes by several.
  struct Shared {
    std::uint64_t communicator = 0;  // MPI's; 0 where this rank is no member
    std::map<std::string, std::shared_ptr<void>> kept;
  };
  Shared& shared_of(const RankContext& context, const std::vector<int>& ranks);
  CaseSpec spec_of(const CaseSpec& application, const ProgramCollective& wanted) const;

  std::unique_ptr<Transport> transport_;
  std::map<std::vector<int>, Shared> shared_;  // by their ranks; all ranks have the case's own
  std::vector<ApplicationCollective> all_;
};

}  // namespace linkgauge
