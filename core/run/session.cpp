#include "run/session.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/not_copied.h"
#include "base/words.h"
#include "group/region_group.h"
#include "measure/block_placement.h"
#include "measure/clock.h"
#include "mpi/library.h"
#include "operation/make_operation.h"
#include "run/case_check.h"
#include "traffic/lanes.h"
#include "traffic/side_by_side.h"
#include "transport/agreement.h"

namespace linkgauge {
namespace {

// MPI libraries have some thousands of communicators, NCCL's take device memory; all pairs of a large launch are more.
constexpr std::size_t kMostCommunicators = 256;

// A rank that fails alone tells the others of its case, and whoever watches; what all of them find alike, they throw
// alike. `groups`: those of the case that this rank is in by then; ranks of each must hear of it also where a rank
// outside of it failed, or where this rank alone of its node saw that.
template <typename Body>
auto telling_others(const std::vector<Group*>& groups, const std::function<void(const std::string&)>& on_failure,
                    const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    const bool own =
        dynamic_cast<const Unsupported*>(&error) == nullptr && dynamic_cast<const PeerError*>(&error) == nullptr;
    if (on_failure && own) on_failure(error.what());
    for (Group* group : groups) group->begin_abort(error);
    throw;
  }
}

// Without those that are there twice: a job alone, and a job of one part.
std::vector<Group*> distinct(std::vector<Group*> groups) {
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

constexpr int kFirstLineTag = 31'000;  // of MPI's world; those of operations are lower
constexpr int kLineTags = 1'500;

}  // namespace

Session::Session(SessionOptions options) : options_(std::move(options)) {
  if (!options_.runtime || !options_.group) throw CallerError("a session needs a runtime and a group");
}

Session::~Session() {
  kept_.clear();  // what transports keep needs the runtime
}

RankContext Session::context_for(const CaseSpec& spec, Group& group, DeviceRuntime& runtime) {
  RankContext context;
  context.runtime = &runtime;
  context.group = &group;
  context.mpi = options_.mpi.get();
  context.device_of_rank = spec.places.devices;
  context.libraries = options_.libraries;
  context.settings = spec.mechanism.settings;
  context.compiling = [beats = options_.heartbeat](bool begins) {
    beats.enter(begins ? Moment::kCompile : Moment::kPrepare);
  };
  context.keep = &kept_[spec.places.rank_list];
  context.lasting = &kept_[{}];  // no case has no ranks
  return context;
}

// The case's settings of a library that has one set of them a process, before what heeds them is made.
void Session::settle(const CaseSpec& spec) {
  settings_ = spec.mechanism.settings;
  unsettled_.clear();
  const bool of_mpi = spec.mechanism.transport == "mpi";
  if (!settings_.empty() && !make_transport(spec.mechanism.transport)->takes_settings()) {
    unsettled_ =
        spec.mechanism.transport + " takes no settings of a case's own; those that can have them are mpi, ucx and ccl";
  }
  if (options_.mpi) {
    const std::string reason = options_.mpi->settle(of_mpi ? settings_ : "");
    if (unsettled_.empty()) unsettled_ = reason;
  }
}

// The measured job and the loads, checked: none of a rank that another has.
std::vector<Session::Job> Session::jobs_of(const CaseSpec& spec) const {
  std::vector<Job> jobs;
  jobs.push_back({.spec = &spec, .pace = spec.jobs.pace ? &*spec.jobs.pace : nullptr});
  for (const Load& load : spec.jobs.loads) {
    jobs.push_back({.number = static_cast<int>(jobs.size()), .spec = &load.spec, .pace = &load.pace});
  }
  std::vector<int> ranks;
  for (Job& job : jobs) {
    job.loads = spec.jobs.loads.size();
    check_case(*job.spec, options_.group->size(), options_.runtime->count());
    job.part = {.number = part_number(*job.spec), .spec = part_of(*job.spec, part_number(*job.spec))};
    ranks.insert(ranks.end(), job.spec->places.rank_list.begin(), job.spec->places.rank_list.end());
    if (job.pace == nullptr) continue;
    const Pace& pace = *job.pace;
    const bool lines = job.spec->jobs.lines.size() == (job.number > 0 ? 0U : 1U);
    const bool times = pace.burst >= 0 && pace.every_ns >= 0 && pace.offset_ns >= 0;
    if (job.spec->jobs.loads.empty() && lines && times && pace.duty > 0 && pace.duty <= 1) continue;
    throw CallerError("load " + std::to_string(job.number) +
                      " must have no loads of its own, no negative burst or time, and a duty above 0 and up to 1");
  }
  if (jobs.size() > 1) check_subset(ranks, options_.group->size());
  return jobs;
}

// The group of the case's ranks that this one is in; 0 where it is in none.
int Session::part_number(const CaseSpec& spec) const {
  const auto place = std::find(spec.places.rank_list.begin(), spec.places.rank_list.end(), options_.group->rank());
  if (place == spec.places.rank_list.end()) return 0;
  return static_cast<int>((place - spec.places.rank_list.begin()) * groups_of(spec) /
                          static_cast<std::ptrdiff_t>(spec.places.rank_list.size()));
}

std::optional<CaseResult> Session::measure(const CaseSpec& spec) {
  Group& launch = *options_.group;
  std::vector<Job> jobs = jobs_of(spec);
  settle(spec);
  std::vector<std::unique_ptr<Group>> made;  // of the case, of its job where there are several, of its part of that
  std::vector<Group*> told;                  // the same
  const auto keep = [&](std::unique_ptr<Group> group) -> Group* {
    if (!group) return nullptr;
    made.push_back(std::move(group));
    told.push_back(made.back().get());
    return told.back();
  };
  const auto within = [&](Group& wider, int first, std::size_t count) -> Group* {
    std::vector<int> places(count);
    std::iota(places.begin(), places.end(), first);
    return keep(wider.subset(places));
  };
  std::optional<CaseResult> result;
  std::exception_ptr error;
  try {
    telling_others(told, options_.on_failure, [&] {
      std::vector<int> ranks;
      for (Job& job : jobs) {
        job.part.communicator = communicator_of(*job.spec, job.part);
        ranks.insert(ranks.end(), job.spec->places.rank_list.begin(), job.spec->places.rank_list.end());
      }
      Group* const everyone = keep(launch.subset(ranks));
      meet(jobs);
      if (everyone == nullptr) return;
      Job* mine = nullptr;
      int first = 0;
      for (Job& job : jobs) {
        const std::size_t count = job.spec->places.rank_list.size();
        job.group = jobs.size() == 1 ? everyone : within(*everyone, first, count);
        if (job.group != nullptr) mine = &job;
        first += static_cast<int>(count);
      }
      mine->everyone = everyone;
      mine->part.group = mine->group;
      const int groups = std::max(groups_of(*mine->spec), 1);
      for (int number = 0; groups > 1 && number < groups; ++number) {
        const int size = mine->group->size() / groups;
        Group* part = within(*mine->group, number * size, static_cast<std::size_t>(size));
        if (part != nullptr) mine->part.group = part;
      }
      std::vector<std::unique_ptr<JobLine>> lines = lines_of(jobs, *everyone, ranks);
      mine->lines = &lines;
      result = measure_as_member(*mine);
    });
  } catch (...) {
    error = std::current_exception();
  }
  if (error || (result && !result->load.failure.empty())) {
    // Others may wait for this rank to give their operation back, also where it never had one.
    for (auto group = made.rbegin(); group != made.rend(); ++group) {
      if ((*group)->aborted()) (*group)->leave();
    }
  }
  options_.heartbeat.enter(Moment::kIdle);
  launch.barrier({}, Waiting::kSleep);
  if (error) std::rethrow_exception(error);
  return result;
}

// What the jobs' mechanisms have all ranks of the launch do together, also those that take no part.
void Session::meet(const std::vector<Job>& jobs) {
  for (const Job& job : jobs) {
    const std::vector<int>& ranks = job.part.spec.places.rank_list;
    const auto place = std::find(ranks.begin(), ranks.end(), options_.group->rank());
    RankContext launch = context_for({}, *options_.group, *options_.runtime);
    launch.device_of_rank.assign(static_cast<std::size_t>(launch.size()), -1);
    launch.device_of_rank[static_cast<std::size_t>(launch.rank())] = options_.device;
    make_transport(job.spec->mechanism.transport)
        ->meet(launch, job.part.spec, place == ranks.end() ? -1 : static_cast<int>(place - ranks.begin()));
  }
}

// This rank's lines: the first rank of the measured job has one to each load, that of a load its own.
std::vector<std::unique_ptr<JobLine>> Session::lines_of(const std::vector<Job>& jobs, Group& everyone,
                                                        const std::vector<int>& ranks) {
  std::vector<std::unique_ptr<JobLine>> lines;
  int place = 0;
  for (const Job& job : jobs) {
    const int number = job.number == 0 ? 0 : lines_made_++;
    if (job.number != 0 && (everyone.rank() == 0 || everyone.rank() == place)) {
      const int tag = kFirstLineTag + 3 * number % kLineTags;
      lines.push_back(std::make_unique<RankLine>(everyone, place, ranks, options_.mpi.get(), tag));
    }
    place += static_cast<int>(job.spec->places.rank_list.size());
  }
  for (const int socket : jobs.front().spec->jobs.lines) {
    if (everyone.rank() == 0) lines.push_back(std::make_unique<SocketLine>(socket));
  }
  return lines;
}

CaseResult Session::measure_as_member(const Job& job) {
  DeviceRuntime* runtime = options_.runtime.get();
  if (hook_ != nullptr) {
    hook_->begin_case(*job.spec);
    runtime = &hook_->runtime();
  }
  RankContext context = context_for(job.part.spec, *job.part.group, *runtime);
  runtime->bind_thread(context.device());
  const std::unique_ptr<Transport> transport = make_transport(job.spec->mechanism.transport);
  std::string reason = why_not_told_apart(*job.spec);
  if (reason.empty()) reason = unsettled_.empty() ? why_not_carried(*transport, context, job.part.spec) : unsettled_;
  // One part's or job's ranks may find what another's do not, and one's library may refuse a setting.
  if (job.part.group != job.everyone || !settings_.empty()) agree_or_throw(*job.everyone, reason);
  if (!reason.empty()) throw Unsupported(reason);
  context.communicator = job.part.communicator;
  if (const int parts = groups_of(*job.spec); parts > 1)
    context.part_by_part = [&job, parts](const std::function<void()>& body) {
      in_turn(*job.group, parts, job.part.number, body);
    };
  Chosen chosen;
  context.chosen = &chosen;
  (void)take_host_pages();  // of a case that failed
  CaseResult result = run_operation(*transport, context, job);
  result.chosen = std::move(chosen);
  result.pages = take_host_pages();
  return result;
}

CaseResult Session::run_operation(Transport& transport, const RankContext& context, const Job& job) {
  const CaseSpec& spec = *job.spec;
  const Subgroup& part = job.part;
  Group& group = *job.group;
  const std::vector<Group*> groups = distinct({job.everyone, job.group, job.part.group});
  const int jobs = static_cast<int>(job.loads) + 1;
  SamplerSettings settings;
  settings.first_lane = part.number * static_cast<int>(lanes_of(part.spec).size());
  settings.heartbeat = options_.heartbeat;
  settings.host_clock = options_.host_clock;
  settings.runtime = context.runtime;
  settings.transport = spec.mechanism.transport;
  settings.timekeeper = traits_of(spec.traffic.pattern).timekeeper;
  settings.kept = spec.jobs.kept;
  if (spec.timing.clock == ClockKind::kEvent) settings.event_clock = event_clock(context.device());
  if (hook_ != nullptr) {
    settings.hook = [this](Moment phase, std::int64_t number, bool after) { hook_->at(phase, number, after); };
  }
  options_.heartbeat.enter(Moment::kPrepare);
  const std::unique_ptr<Operation> operation = make_operation(transport, context, part.spec);
  // Gives everything back also when a rank failed: the group then knows, and no wait of release() lasts.
  struct Release : NotCopied {
    Release(Operation& of, const Heartbeat& beats, CaseHook* seen_by)
        : operation(of), heartbeat(beats), hook(seen_by) {}
    ~Release() {
      heartbeat.enter(Moment::kRelease);
      if (hook != nullptr) hook->at(Moment::kRelease, -1, false);
      operation.release();
    }

    Operation& operation;
    const Heartbeat& heartbeat;
    CaseHook* hook;
  };
  CaseResult result;
  result.lanes = lanes_of(spec);
  {
    const Release release(*operation, options_.heartbeat, hook_);
    telling_others(groups, options_.on_failure, [&] {
      // One job after the other: what is tried out for one is not disturbed by what is tried out for another.
      in_turn(*job.everyone, jobs, job.number, [&] {
        if (hook_ != nullptr) hook_->at(Moment::kPrepare, -1, false);
        operation->prepare();
      });
      const auto compare_clocks = [&](const char* moment) {
        if (group.node_count() == 1) return;
        const ClockOffset clock = group.compare_clocks(operation->progress());
        result.clocks.push_back({moment, now_ns(), clock});
      };
      compare_clocks("before");
      std::optional<BlockPlacement> placement;
      // A host device is one core.
      if (transport.begins_kernels(spec.mechanism) && context.runtime->kind() != RuntimeKind::kHost) {
        const auto rank = static_cast<std::uint64_t>(group.rank());
        placement.emplace(*context.runtime, context.device(), spec.timing.seed + rank);
        settings.placement = &*placement;
      }
      if (job.pace != nullptr) {
        JobLine* line = job.lines->empty() ? nullptr : job.lines->front().get();
        result.load = keep_on(*operation, group, *job.everyone, spec.timing, *job.pace, line, settings);
        result.load.number = std::max(job.number, 1);
      } else {
        result.measurement = measure_alternating(*operation, job, settings);
        const auto timed = [](const Sample& one) { return one.phase == Phase::kSample; };
        const std::vector<Sample>& samples = result.measurement.samples;
        result.steps =
            operation->step_report(static_cast<std::size_t>(std::count_if(samples.begin(), samples.end(), timed)));
        if (const auto& within = result.measurement.least_certain) {
          result.clocks.push_back({"within", result.measurement.least_certain_ns, *within});
        }
        compare_clocks("after");
      }
      options_.heartbeat.enter(Moment::kOthers);
      if (jobs > 1) job.everyone->barrier({}, Waiting::kSleep);  // where all hear of it if another job failed
    });
  }
  return result;
}

// The measured job's samples, from when all loads are at their rate; they keep on until it has them.
Measurement Session::measure_alternating(Operation& operation, const Job& job, SamplerSettings settings) {
  Group& group = *job.group;
  if (job.loads == 0 && job.spec->jobs.lines.empty()) return sample(operation, group, job.spec->timing, settings);
  LoadControl control(*job.lines, *job.everyone);
  const Progress progress = operation.progress();
  settings.let_loads = [&](bool go_on) {
    settings.heartbeat.enter(Moment::kOthers);
    control.let(go_on);
    group.barrier(progress, Waiting::kSleep);
    settings.heartbeat.enter(Moment::kTime);
  };
  try {
    settings.heartbeat.enter(Moment::kOthers);
    control.wait_until_at_rate();
    group.barrier(progress, Waiting::kSleep);
    Measurement measured = sample(operation, group, job.spec->timing, settings);
    control.end();
    return measured;
  } catch (const std::exception& error) {
    group.begin_abort(error);  // also of a load's failure: the others wait for this rank
    control.end();
    throw;
  }
}

// Collective over the launch. All ranks keep the same communicators, so all make and free them together: those of MPI,
// and with or without it what transports keep for a case's ranks, communicators of NCCL among them.
std::uint64_t Session::communicator_of(const CaseSpec& spec, const Subgroup& part) {
  MpiLibrary* const mpi = options_.mpi.get();
  const std::vector<int>& ranks = spec.places.rank_list;
  const int groups = std::max(groups_of(spec), 1);
  const bool in_order = std::is_sorted(ranks.begin(), ranks.end());
  const bool all = groups == 1 && in_order && static_cast<int>(ranks.size()) == options_.group->size();
  if (all && spec.mechanism.settings.empty()) return mpi == nullptr ? 0 : mpi->world();
  for (auto known = communicators_.begin(); known != communicators_.end(); ++known) {
    if (known->ranks != ranks || known->groups != groups || known->settings != spec.mechanism.settings) continue;
    std::rotate(known, known + 1, communicators_.end());
    return communicators_.back().handle;
  }
  if (communicators_.size() == kMostCommunicators) {
    kept_.erase(communicators_.front().own);
    if (communicators_.front().handle != 0) mpi->comm_free(communicators_.front().handle);
    communicators_.pop_front();
  }
  const auto place = std::find(ranks.begin(), ranks.end(), options_.group->rank());
  const int color = place != ranks.end() ? part.number : -1;
  const int key = static_cast<int>(place - ranks.begin());
  const std::uint64_t handle = mpi == nullptr ? 0 : mpi->comm_split(mpi->world(), color, key);
  communicators_.push_back({ranks, groups, part.spec.places.rank_list, spec.mechanism.settings, handle});
  return handle;
}

ClockFacts Session::event_clock(int device) {
  const auto found = event_clocks_.find(device);
  if (found != event_clocks_.end()) return found->second;
  options_.runtime->bind_thread(device);
  return event_clocks_.emplace(device, measure_event_clock(*options_.runtime, device)).first->second;
}

void Session::set_hook(const MakeHook& make) {
  hook_ = nullptr;
  if (!make) return;
  hooks_.push_back(make(options_.group->rank(), *options_.runtime));
  hook_ = hooks_.back().get();
}

}  // namespace linkgauge
