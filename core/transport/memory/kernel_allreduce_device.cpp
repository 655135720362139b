#include "transport/memory/kernel_allreduce_device.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/now.h"
#include "kernels/kernels.h"
#include "transport/agreement.h"
#include "transport/memory/kernel_allreduce.h"

namespace linkgauge {
namespace {

constexpr int kTunedOperations = 5;
constexpr std::size_t kSmallBytes = std::size_t{1} << 20;  // below, so few would be lost in the host's own spread
constexpr int kTunedSmallOperations = 40;

}  // namespace

DeviceMetAllreduce::DeviceMetAllreduce(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                       bool pushes)
    : InKernelAllreduce(transport, context, spec),
      mode_(is_one_shot(spec.mechanism) ? direct::kOneShot
            : pushes                    ? direct::kTwoShotPush
                                        : direct::kTwoShotPull) {}

void DeviceMetAllreduce::connect() {
  allocate_and_agree();
  make_meetings(context().device());
  // The sources and targets of all ranks, then their flags where they have such, by rank.
  std::vector<void*> places = reachable(source());
  if (traffic().in_place) places.insert(places.end(), places.begin(), places.end());
  for (const Buffer* buffer : {target(), static_cast<const Buffer*>(&flags_)}) {
    if (buffer->data() == nullptr || (buffer == target() && traffic().in_place)) continue;
    const std::vector<void*> more = reachable(buffer);
    places.insert(places.end(), more.begin(), more.end());
  }
  runtime().copy_now(lists_.data(), context().device(), places.data(), -1, places.size() * sizeof(void*));
  tune();
}

void DeviceMetAllreduce::allocate(int device) {
  lists_ = Buffer(runtime(), device, MemoryKind::kDevice, 3 * static_cast<std::size_t>(ranks()) * sizeof(void*));
}

void DeviceMetAllreduce::make_meetings(int device) {
  agreeing(group(), {}, [&] {
    // A peer may write a flag as soon as it has the handle: they are zero before.
    flags_ = zeroed(direct::flag_words(multiprocessors_) * sizeof(std::uint64_t));
    kernel_ = runtime().kernel(device, kKernelAllreduce);
  });
}

void DeviceMetAllreduce::free_scratch() noexcept {
  InKernelAllreduce::free_scratch();
  flags_ = Buffer();
  lists_ = Buffer();
}

void DeviceMetAllreduce::launch() {
  void* lists = lists_.data();
  std::int32_t count = ranks();
  std::int32_t me = rank();
  std::uint64_t elements = static_cast<std::uint64_t>(traffic().size_bytes) / size_of(traffic().datatype);
  auto datatype = static_cast<std::uint32_t>(traffic().datatype);
  auto op = static_cast<std::uint32_t>(traffic().op);
  std::uint32_t mode = mode_;
  std::uint64_t epoch = epoch_;
  std::uint64_t ticks = patience();
  void* failure = host_words_.data();
  void* arguments[] = {first_argument_, &lists, &count, &me,     &elements, &datatype, &op,
                       &mode,           &epoch, &ticks, &failure};
  runtime().launch(kernel_, shape_, first_argument_ == nullptr ? arguments + 1 : arguments, stream_.handle());
}

void DeviceMetAllreduce::tune() {
  const std::vector<LaunchShape> shapes = shapes_to_try();
  shape_ = shapes[fastest_of(shapes.size(), [&](std::size_t choice) {
    shape_ = shapes[choice];
    const bool small = traffic().size_bytes < static_cast<std::int64_t>(kSmallBytes);
    const std::int64_t warm_ns = time_operations(1);
    const std::int64_t ns = time_operations(small ? kTunedSmallOperations : kTunedOperations);
    return Trial{static_cast<double>(ns), warm_ns + ns};
  })];
  if (shapes.size() > 1) context().choose("grid", shape_.grid());
}

std::int64_t DeviceMetAllreduce::time_operations(int count) {
  group().barrier({});
  const std::int64_t start_ns = now_ns();
  for (int i = 0; i < count; ++i) post();
  complete();
  return group().largest_of(now_ns() - start_ns, {});
}

// One block a multiprocessor at most: then all are on the device at once, whatever a block takes of it.
std::vector<LaunchShape> DeviceMetAllreduce::shapes_to_try() const {
  if (on_host_) return {{1, 1, 0}};
  if (mechanism().blocks > 0) return {{static_cast<unsigned>(mechanism().blocks), kMostAllreduceThreads, 0}};
  const std::size_t size = traffic().bytes();
  const std::size_t units =
      (mode_ == direct::kOneShot ? size : direct::part_of(size, ranks(), 0).bytes) / direct::kUnit;
  std::vector<LaunchShape> shapes;
  for (const unsigned threads : {512U, 256U, 128U}) {
    const auto useful = static_cast<unsigned>(
        std::clamp<std::size_t>((units + threads - 1) / threads, 1, static_cast<std::size_t>(multiprocessors_)));
    unsigned before = 0;
    for (const unsigned blocks : {useful, useful / 2, useful / 4}) {
      if (blocks == 0 || blocks == before) continue;
      shapes.push_back({blocks, threads, 0});
      before = blocks;
    }
  }
  return shapes;
}

std::string DeviceMetAllreduce::missed(const direct::Failure& failure) const {
  const char* meeting = failure.meeting == 1 ? "begin" : failure.meeting == direct::kMeetings ? "end" : "results";
  return "rank " + std::to_string(failure.peer) + " did not come to block " + std::to_string(failure.block) +
         "'s meeting at the " + meeting;
}

std::unique_ptr<Operation> make_device_met_allreduce(Transport& transport, const RankContext& context,
                                                     const CaseSpec& spec, bool pushes) {
  return std::make_unique<DeviceMetAllreduce>(transport, context, spec, pushes);
}

}  // namespace linkgauge
