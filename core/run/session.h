// One rank's door to the core: a case goes in, this rank's samples come out.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/case_spec.h"
#include "base/not_copied.h"
#include "device/device_runtime.h"
#include "device/host_pages.h"
#include "group/group.h"
#include "measure/load.h"
#include "measure/sampler.h"
#include "transport/transport.h"

namespace linkgauge {

struct SessionOptions {
  std::shared_ptr<DeviceRuntime> runtime;
  std::shared_ptr<Group> group;     // the launch's ranks
  int device = -1;                  // this rank's, in every case; what all ranks begin together needs it
  std::shared_ptr<MpiLibrary> mpi;  // nullptr without MPI; its world's ranks are the launch's
  LibraryPlaces libraries;
  Heartbeat heartbeat;
  // Told what this rank failed with as soon as it did: another rank may wait inside a library for ever, and then
  // measure never returns. Empty: nobody asks.
  std::function<void(const std::string& reason)> on_failure;
  ClockFacts host_clock;  // measured once per process
};

// This rank's clock against that of the case's first node; only where the case has several nodes.
struct ClockComparison {
  const char* moment;    // before | within | after
  std::int64_t when_ns;  // of this rank's clock
  ClockOffset clock;
};

struct CaseResult {
  Measurement measurement;
  std::vector<ClockComparison> clocks;
  std::vector<std::string> lanes;
  Chosen chosen;
  HostPages pages;   // of this rank's host buffers
  StepReport steps;  // of an application
  LoadReport load;   // of a rank that played a load; its measurement is empty then
};

// For tests: sees every phase of a case, and may put a runtime of its own before the session's.
class CaseHook {
 public:
  virtual ~CaseHook() = default;
  virtual DeviceRuntime& runtime() = 0;
  virtual void begin_case(const CaseSpec& spec) = 0;
  virtual void at(Moment phase, std::int64_t sample, bool after) = 0;  // as PhaseHook, and at kPrepare and kRelease
};
using MakeHook = std::function<std::shared_ptr<CaseHook>(int launch_rank, DeviceRuntime& runtime)>;

class Session : NotCopied {
 public:
  explicit Session(SessionOptions options);
  ~Session();

  // Collective over the launch's ranks, in the thread that plays this rank: those of spec.places.rank_list measure,
  // those of its loads keep on beside them, the others sleep until all are done and get nothing. Returns or throws on
  // all ranks before any starts its next case. Throws Unsupported where the transport cannot, PeerError where another
  // rank failed, and what this rank failed with; the launch's group stays usable.
  std::optional<CaseResult> measure(const CaseSpec& spec);

  ClockFacts host_clock() const { return options_.host_clock; }
  ClockFacts event_clock(int device);

  // For tests: of every later case until another is set; empty: none.
  void set_hook(const MakeHook& make);

 private:
  using Kept = std::map<std::string, std::shared_ptr<void>>;
  // What of a case is this rank's: all of it, or the part of its group of ranks (traffic/side_by_side.h).
  struct Subgroup {
    int number = 0;
    CaseSpec spec;
    Group* group = nullptr;
    std::uint64_t communicator = 0;  // of MPI; 0 without
  };
  // What this rank does in a case: a rank of the measured job, or of a load.
  struct Job {
    int number = 0;                  // of the load, from 1; 0: the measured job
    const CaseSpec* spec = nullptr;  // of all its ranks
    std::size_t loads = 0;           // that the case has
    const Pace* pace = nullptr;      // nullptr: the measured job
    Subgroup part = {};
    Group* group = nullptr;     // its ranks
    Group* everyone = nullptr;  // those of all the case's jobs
    std::vector<std::unique_ptr<JobLine>>* lines = nullptr;
  };
  void meet(const std::vector<Job>& jobs);
  CaseResult measure_as_member(const Job& job);
  CaseResult run_operation(Transport& transport, const RankContext& context, const Job& job);
  Measurement measure_alternating(Operation& operation, const Job& job, SamplerSettings settings);
  std::vector<Job> jobs_of(const CaseSpec& spec) const;
  std::vector<std::unique_ptr<JobLine>> lines_of(const std::vector<Job>& jobs, Group& everyone,
                                                 const std::vector<int>& ranks);
  void settle(const CaseSpec& spec);
  int part_number(const CaseSpec& spec) const;
  RankContext context_for(const CaseSpec& spec, Group& group, DeviceRuntime& runtime);

  SessionOptions options_;
  // Every hook that there was stays: what transports keep may have been made through its runtime.
  std::vector<std::shared_ptr<CaseHook>> hooks_;
  CaseHook* hook_ = nullptr;                // nullptr outside of tests
  std::map<int, ClockFacts> event_clocks_;  // by device
  // One for a case however many its groups: each rank has its own group's.
  struct Communicator {
    std::vector<int> ranks;  // of the case
    int groups;
    std::vector<int> own;  // this rank's group's
    std::string settings;  // under which it was made
    std::uint64_t handle;  // of MPI; 0 where this rank is no member, or without MPI
  };
  std::uint64_t communicator_of(const CaseSpec& spec, const Subgroup& part);
  std::deque<Communicator> communicators_;  // the longest unused first
  std::map<std::vector<int>, Kept> kept_;
  int lines_made_ = 0;     // the same on all ranks
  std::string settings_;   // of the case that is measured
  std::string unsettled_;  // why they cannot be had here; empty where they can
};

}  // namespace linkgauge
