#include "session.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "errors.h"
#include "group/region_group.h"
#include "measure/block_placement.h"
#include "measure/clock.h"
#include "pattern/side_by_side.h"
#include "transport/agreement.h"
#include "transport/mpi_library.h"

namespace linkgauge {
namespace {

// MPI libraries have some thousands of communicators; all pairs of a large launch are more.
constexpr std::size_t kMostCommunicators = 256;

// Says who takes part before they have met: what supports() needs. It can hold no meeting.
class PlannedGroup final : public Group {
 public:
  PlannedGroup(int rank, int size, const Group& launch) : rank_(rank), size_(size), launch_(launch) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int node() const override { return launch_.node(); }
  int node_count() const override { return std::min(size_, launch_.node_count()); }
  bool one_process() const override { return launch_.one_process(); }
  void barrier(const Progress& /*progress*/, Waiting /*waiting*/) override { refuse(); }
  bool agree(bool /*mine*/, const Progress& /*progress*/) override { refuse(); }
  std::vector<std::vector<std::byte>> exchange(const std::vector<std::byte>& /*mine*/,
                                               const Progress& /*progress*/) override {
    refuse();
  }
  Group& on_node() override { refuse(); }
  void gather(std::span<const std::byte> /*mine*/, const Take& /*take*/) override { refuse(); }
  std::unique_ptr<Group> subset(const std::vector<int>& /*ranks*/) override { refuse(); }
  std::int64_t align(std::int64_t /*lead_ns*/, std::int64_t /*offset_ns*/, const Progress& /*progress*/) override {
    refuse();
  }
  std::atomic<std::uint64_t>* flag(int /*source*/, int /*target*/, int /*channel*/) override { refuse(); }
  bool aborted() const override { return launch_.aborted(); }
  void abort_with(const std::string& /*reason*/) noexcept override {}
  void part() noexcept override {}

 private:
  [[noreturn]] static void refuse() { throw CallerError("a planned group cannot meet"); }
  int rank_;
  int size_;
  const Group& launch_;
};

std::string listed(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return "[" + text + "]";
}

// A rank that fails alone tells the others of its case, and whoever watches; what all of them find alike, they throw
// alike. `part`: the ranks that this one works with, who must hear of it also where another group's rank failed.
template <typename Body>
auto telling_others(Group& group, Group& part, const std::function<void(const std::string&)>& on_failure,
                    const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const PeerError& error) {
    if (&part != &group) part.abort_with(error.what());
    throw;
  } catch (const std::exception& error) {
    const bool refusal = dynamic_cast<const Unsupported*>(&error) != nullptr;
    if (on_failure && !refusal) on_failure(error.what());
    group.abort_with(error.what());
    if (&part != &group) part.abort_with(error.what());
    throw;
  }
}

}  // namespace

Session::Session(SessionOptions options) : options_(std::move(options)) {
  if (!options_.runtime || !options_.group) throw CallerError("a session needs a runtime and a group");
}

Session::~Session() {
  kept_.clear();  // what transports keep needs the runtime
}

void Session::check(const CaseSpec& spec) const {
  const int launch_size = options_.group->size();
  const auto ranks = static_cast<int>(spec.rank_list.size());
  check_subset(spec.rank_list, launch_size);
  if (spec.devices.size() != spec.rank_list.size()) {
    throw CallerError("devices " + listed(spec.devices) + " must have one entry for each of the " +
                      std::to_string(ranks) + " ranks");
  }
  for (const int device : spec.devices) {
    if (device < 0 || device >= options_.runtime->count()) {
      throw CallerError("there is no device " + std::to_string(device) + ", expected 0 to " +
                        std::to_string(options_.runtime->count() - 1));
    }
  }
  const auto at_least = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value >= least) return;
    throw CallerError(std::string(name) + " " + std::to_string(value) + " must be " + std::to_string(least) +
                      " or more");
  };
  at_least("size_bytes", spec.size_bytes, 0);
  at_least("window", spec.window, 1);
  at_least("batch", spec.batch, 1);
  at_least("skew_ns", spec.skew_ns, 0);
  at_least("warmup", spec.warmup, 0);
  for (const int device : {spec.source_device, spec.target_device}) {
    if (device < options_.runtime->count()) continue;
    throw CallerError("there is no device " + std::to_string(device) + ", expected -1 to " +
                      std::to_string(options_.runtime->count() - 1));
  }
  const std::string ungrouped = why_not_grouped(spec);
  if (!ungrouped.empty()) throw CallerError(ungrouped);
  if (spec.root < 0 || spec.root >= ranks / spec.groups) {
    throw CallerError("root " + std::to_string(spec.root) + " must be a rank of the case or group, 0 to " +
                      std::to_string(ranks / spec.groups - 1));
  }
}

RankContext Session::context_for(const CaseSpec& spec, Group& group, DeviceRuntime& runtime) {
  RankContext context;
  context.runtime = &runtime;
  context.group = &group;
  context.mpi = options_.mpi.get();
  context.device_of_rank = spec.devices;
  context.libraries = options_.libraries;
  context.keep = &kept_[spec.rank_list];
  return context;
}

std::string Session::supports(const CaseSpec& spec) {
  check(spec);
  const CaseSpec part = part_of(spec, part_number(spec));
  const auto place = std::find(part.rank_list.begin(), part.rank_list.end(), options_.group->rank());
  const int rank = place == part.rank_list.end() ? 0 : static_cast<int>(place - part.rank_list.begin());
  PlannedGroup group(rank, static_cast<int>(part.rank_list.size()), *options_.group);
  const std::unique_ptr<Transport> transport = make_transport(spec.transport);
  return transport->supports(context_for(part, group, *options_.runtime), part);
}

// The group of the case's ranks that this one is in; 0 where it is in none.
int Session::part_number(const CaseSpec& spec) const {
  const auto place = std::find(spec.rank_list.begin(), spec.rank_list.end(), options_.group->rank());
  if (place == spec.rank_list.end()) return 0;
  return static_cast<int>((place - spec.rank_list.begin()) * groups_of(spec) /
                          static_cast<std::ptrdiff_t>(spec.rank_list.size()));
}

std::optional<CaseResult> Session::measure(const CaseSpec& spec) {
  check(spec);
  Group& launch = *options_.group;
  Part part{.number = part_number(spec), .spec = part_of(spec, part_number(spec))};
  const int groups = std::max(groups_of(spec), 1);
  part.communicator = communicator_of(spec, part);
  const std::unique_ptr<Group> group = launch.subset(spec.rank_list);
  std::unique_ptr<Group> own;
  std::optional<CaseResult> result;
  std::exception_ptr error;
  try {
    part.group = group.get();
    for (int number = 0; group && groups > 1 && number < groups; ++number) {
      const int size = group->size() / groups;
      std::vector<int> places(static_cast<std::size_t>(size));
      std::iota(places.begin(), places.end(), number * size);
      std::unique_ptr<Group> made = group->subset(places);
      if (made) own = std::move(made);
      part.group = own.get();
    }
    if (group) result = measure_as_member(spec, *group, part);
  } catch (...) {
    error = std::current_exception();
    // Others may wait for this rank to give their operation back, also where it never had one.
    for (Group* failed : {own.get(), group.get()}) {
      if (failed != nullptr && failed->aborted()) failed->part();
    }
  }
  options_.heartbeat.enter(Moment::kIdle);
  launch.barrier({}, Waiting::kSleep);
  if (error) std::rethrow_exception(error);
  return result;
}

CaseResult Session::measure_as_member(const CaseSpec& spec, Group& group, const Part& part) {
  return telling_others(group, *part.group, options_.on_failure, [&] {
    DeviceRuntime* runtime = options_.runtime.get();
    if (injector_ != nullptr) {
      injector_->begin_case(spec);
      runtime = &injector_->runtime();
    }
    RankContext context = context_for(part.spec, *part.group, *runtime);
    runtime->bind_thread(context.device());
    const std::unique_ptr<Transport> transport = make_transport(spec.transport);
    const std::string reason = transport->supports(context, part.spec);
    if (part.group != &group) agree_or_throw(group, reason);  // one group's ranks may find what another's do not
    if (!reason.empty()) throw Unsupported(reason);
    context.communicator = part.communicator;
    return run_operation(*transport, context, spec, group, part);
  });
}

CaseResult Session::run_operation(Transport& transport, const RankContext& context, const CaseSpec& spec, Group& group,
                                  const Part& part) {
  SamplerSettings settings;
  settings.first_lane = part.number * static_cast<int>(lanes_of(part.spec).size());
  settings.heartbeat = options_.heartbeat;
  settings.host_clock = options_.host_clock;
  settings.runtime = context.runtime;
  if (spec.clock == ClockKind::kEvent) settings.event_clock = event_clock(context.device());
  if (injector_ != nullptr) {
    settings.hook = [this](const char* phase, std::int64_t number, bool after) { injector_->at(phase, number, after); };
  }
  options_.heartbeat.enter(Moment::kPrepare);
  const std::unique_ptr<Operation> operation = make_operation(transport, context, part.spec);
  // Gives everything back also when a rank failed: the group then knows, and no wait of release() lasts.
  struct Release {
    Release(Operation& of, const Heartbeat& beats, FaultInjector* faults)
        : operation(of), heartbeat(beats), injector(faults) {}
    ~Release() {
      heartbeat.enter(Moment::kRelease);
      if (injector != nullptr) injector->at("release", -1, false);
      operation.release();
    }
    Release(const Release&) = delete;
    Release& operator=(const Release&) = delete;

    Operation& operation;
    const Heartbeat& heartbeat;
    FaultInjector* injector;
  };
  CaseResult result;
  result.lanes = lanes_of(spec);
  {
    const Release release(*operation, options_.heartbeat, injector_);
    telling_others(group, *part.group, options_.on_failure, [&] {
      if (injector_ != nullptr) injector_->at("prepare", -1, false);
      operation->prepare();
      const auto compare_clocks = [&](const char* moment) {
        if (group.node_count() == 1) return;
        const ClockOffset clock = group.compare_clocks(operation->progress());
        result.clocks.push_back({moment, now_ns(), clock});
      };
      compare_clocks("before");
      std::optional<BlockPlacement> placement;
      // A host device is one core.
      if (transport.begins_kernels(spec) && context.runtime->name() != "host") {
        const auto rank = static_cast<std::uint64_t>(group.rank());
        placement.emplace(*context.runtime, context.device(), spec.seed + rank);
        settings.placement = &*placement;
      }
      result.measurement = sample(*operation, group, spec, settings);
      compare_clocks("after");
    });
  }
  return result;
}

// Collective over the launch. All ranks keep the same communicators, so all make and free them together.
std::uint64_t Session::communicator_of(const CaseSpec& spec, const Part& part) {
  if (!options_.mpi) return 0;
  MpiLibrary& mpi = *options_.mpi;
  const std::vector<int>& ranks = spec.rank_list;
  const int groups = std::max(groups_of(spec), 1);
  const bool in_order = std::is_sorted(ranks.begin(), ranks.end());
  if (groups == 1 && in_order && static_cast<int>(ranks.size()) == options_.group->size()) return mpi.world();
  for (auto known = communicators_.begin(); known != communicators_.end(); ++known) {
    if (known->ranks != ranks || known->groups != groups) continue;
    std::rotate(known, known + 1, communicators_.end());
    return communicators_.back().handle;
  }
  if (communicators_.size() == kMostCommunicators) {
    kept_.erase(communicators_.front().own);
    if (communicators_.front().handle != 0) mpi.comm_free(communicators_.front().handle);
    communicators_.pop_front();
  }
  const int rank = options_.group->rank();
  const auto place = std::find(ranks.begin(), ranks.end(), rank);
  const int colour = place != ranks.end() ? part.number : -1;
  const int key = static_cast<int>(place - ranks.begin());
  communicators_.push_back({ranks, groups, part.spec.rank_list, mpi.comm_split(mpi.world(), colour, key)});
  return communicators_.back().handle;
}

ClockFacts Session::event_clock(int device) {
  const auto found = event_clocks_.find(device);
  if (found != event_clocks_.end()) return found->second;
  options_.runtime->bind_thread(device);
  return event_clocks_.emplace(device, measure_event_clock(*options_.runtime, device)).first->second;
}

void Session::set_fault(std::optional<Fault> fault) {
  injector_ = nullptr;
  if (!fault) return;
  injectors_.push_back(std::make_unique<FaultInjector>(std::move(*fault), options_.group->rank(), *options_.runtime));
  injector_ = injectors_.back().get();
}

}  // namespace linkgauge
