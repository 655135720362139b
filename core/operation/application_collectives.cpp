#include "operation/application_collectives.h"

#include <algorithm>

#include "base/patterns.h"
#include "mpi/library.h"
#include "operation/make_operation.h"
#include "transport/agreement.h"

namespace linkgauge {

void ApplicationCollectives::prepare(const RankContext& context, const CaseSpec& spec, const Program& program,
                                     const Progress& progress) {
  Group& group = *context.group;
  all_.resize(program.collectives.size());
  for (std::size_t number = 0; number < all_.size(); ++number) {
    const ProgramCollective& wanted = program.collectives[number];
    ApplicationCollective& one = all_[number];
    one.group = group.subset(wanted.ranks);
    one.context = context;
    one.context.group = one.group.get();
    one.context.one_stream = true;
    one.spec = spec_of(spec, wanted);
    one.context.device_of_rank = one.spec.places.devices;
    const bool everyone = one.spec.places.rank_list == spec.places.rank_list;
    if (!everyone) {
      Shared& shared = shared_of(context, wanted.ranks);
      one.context.keep = &shared.kept;
      one.context.communicator = shared.communicator;
    }
    agreeing(group, progress, [&] {
      if (one.group != nullptr) one.operation = make_operation(*transport_, one.context, one.spec);
    });
    agreeing(group, progress, [&] {
      if (one.operation != nullptr) one.operation->prepare();
    });
  }
}

void ApplicationCollectives::begin_abort(const std::exception& error) {
  for (ApplicationCollective& one : all_) {
    if (one.group != nullptr) one.group->begin_abort(error);
  }
}

void ApplicationCollectives::fill(std::uint64_t seed) {
  for (ApplicationCollective& one : all_) {
    if (one.operation != nullptr) one.operation->fill(seed);
  }
}

void ApplicationCollectives::verify(std::uint64_t seed, VerifyResult& result) {
  for (std::size_t number = 0; number < all_.size(); ++number) {
    if (all_[number].operation == nullptr) continue;
    const VerifyResult found = all_[number].operation->verify(seed);  // also where data are wrong already: others meet
    if (found.ok || !result.ok) continue;
    result = found;
    result.where =
        std::string(to_string(all_[number].spec.traffic.pattern)) + " " + std::to_string(number) + ": " + found.where;
  }
}

void ApplicationCollectives::release() noexcept {
  for (ApplicationCollective& one : all_) {
    if (one.operation != nullptr) one.operation->release();
  }
}

void ApplicationCollectives::free_communicators(const RankContext& context) {
  for (auto& [ranks, one] : shared_) {
    if (one.communicator != 0) context.mpi->comm_free(one.communicator);
  }
}

void ApplicationCollectives::clear() {
  all_.clear();
  shared_.clear();
}

ApplicationCollectives::Shared& ApplicationCollectives::shared_of(const RankContext& context,
                                                                  const std::vector<int>& ranks) {
  const auto [found, is_new] = shared_.try_emplace(ranks);
  if (is_new && context.mpi != nullptr) {
    const auto place = std::find(ranks.begin(), ranks.end(), context.rank());
    found->second.communicator = context.mpi->comm_split(context.communicator, place == ranks.end() ? -1 : 0,
                                                         static_cast<int>(place - ranks.begin()));
  }
  return found->second;
}

CaseSpec ApplicationCollectives::spec_of(const CaseSpec& application, const ProgramCollective& wanted) const {
  CaseSpec spec = application;
  spec.mechanism.transport = std::string(transport_->name());
  const bool begun = wanted.begun && traits_of(wanted.pattern).mpi_call && spec.mechanism.transport == "mpi";
  spec.mechanism.variant = begun ? "nonblocking" : "";
  spec.traffic.pattern = wanted.pattern;
  spec.traffic.size_bytes = wanted.size_bytes;
  spec.traffic.root = wanted.root;
  spec.traffic.distribution = wanted.distribution;
  spec.traffic.in_place = wanted.in_place;
  spec.traffic.window = 1;
  spec.places.rank_list.clear();
  spec.places.devices.clear();
  for (const int member : wanted.ranks) {
    spec.places.rank_list.push_back(application.places.rank_list[static_cast<std::size_t>(member)]);
    spec.places.devices.push_back(application.places.devices[static_cast<std::size_t>(member)]);
  }
  return spec;
}

}  // namespace linkgauge
