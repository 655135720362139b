#include "transport/nccl/device.h"

#include <cstring>
#include <filesystem>
#include <utility>

#include "base/errors.h"
#include "kernels/kernel_source.h"
#include "transport/agreement.h"
#include "transport/buffered_operation.h"
#include "transport/device_pattern.h"
#include "transport/memory/kernel_allreduce_device.h"
#include "transport/nccl/config.h"

namespace linkgauge {
namespace {

constexpr char kBarrier[] = "lg_lsa_barrier";
constexpr char kAllreduce[] = "lg_lsa_allreduce";
constexpr std::size_t kWordBytes = 128;

// The headers that came with the library, which lie beside it in its wheel and in its tar files.
std::string header_folder(const ccl::Library& library) {
  return (std::filesystem::path(library.path()).parent_path().parent_path() / "include").string();
}

// A case's barriers of NCCL's, kRoundsOfLaunch of them an operation.
class LsaBarrier final : public BufferedOperation {
 public:
  LsaBarrier(Transport& transport, const RankContext& context, const CaseSpec& spec, const ccl::Library& library)
      : BufferedOperation(transport, context, spec, LayoutRules{.no_bytes = true}), library_(&library) {}

  void post() override {
    std::uint64_t rounds = kRoundsOfLaunch;
    std::uint64_t patience = kKernelPatienceNs;
    void* word = gave_up_.data();
    void* arguments[] = {device_->argument(), &rounds, &patience, &word};  // the first as long as NCCL has it
    runtime().launch(kernel_, {1, kThreads, 0}, arguments, stream_.handle());
  }
  void complete() override {
    stream_.synchronize();  // the kernel's waits end by themselves
    const std::uint64_t round = *static_cast<const volatile std::uint64_t*>(gave_up_.data());
    if (round == 0) return;
    group().throw_if_aborted();
    throw Error("barrier gave up: in round " + std::to_string(round) + " of " + std::to_string(kRoundsOfLaunch) +
                " a rank did not come within " + std::to_string(kKernelPatienceNs / 1'000'000'000) + " s");
  }
  std::int64_t steps() const override { return static_cast<std::int64_t>(kRoundsOfLaunch); }
  std::vector<DeviceQueue> queues() const override { return {{stream_.handle(), context().device()}}; }

 private:
  static constexpr unsigned kThreads = 32;

  void connect() override {
    agreeing(group(), {}, [&] {
      gave_up_ = Buffer(runtime(), context().device(), MemoryKind::kPinned, kWordBytes);
      std::memset(gave_up_.data(), 0, gave_up_.size());
      stream_ = Stream(runtime(), context().device());
    });
    device_ = std::make_unique<CclDevice>(context(), CclCommunicator::of(*library_, context()), 1);
    kernel_ = device_->kernel(kBarrier);
  }
  void disconnect() noexcept override {
    stream_.end();
    device_.reset();
  }
  void free_scratch() noexcept override {
    stream_ = Stream();
    gave_up_ = Buffer();
  }

  const ccl::Library* library_;
  std::unique_ptr<CclDevice> device_;
  KernelHandle kernel_ = nullptr;
  Stream stream_;
  Buffer gave_up_;
};

class LsaMetAllreduce final : public DeviceMetAllreduce {
 public:
  LsaMetAllreduce(Transport& transport, const RankContext& context, const CaseSpec& spec, const ccl::Library& library,
                  bool pushes)
      : DeviceMetAllreduce(transport, context, spec, pushes), library_(&library) {}

 private:
  void make_meetings(int /*device*/) override {
    device_ = std::make_unique<CclDevice>(context(), CclCommunicator::of(*library_, context()),
                                          static_cast<int>(multiprocessors_));
    kernel_ = device_->kernel(kAllreduce);
    first_argument_ = device_->argument();
  }
  void disconnect() noexcept override {
    DeviceMetAllreduce::disconnect();
    device_.reset();
  }

  const ccl::Library* library_;
  std::unique_ptr<CclDevice> device_;
};

}  // namespace

std::string why_not_lsa(const RankContext& context, const ccl::Library& library) {
  const ccl::Table& calls = library.calls();
  if (library.version_code() < ccl::kDeviceVersion || calls.ncclCommQueryProperties == nullptr ||
      calls.ncclDevCommCreate == nullptr || calls.ncclDevCommDestroy == nullptr) {
    return std::string(library.name()) + " " + library.version() +
           " has no barriers for kernels compiled at run time: NCCL 2.32 or newer is needed";
  }
  if (context.group->node_count() > 1) return "NCCL's barriers of kernels that load and store are of one node";
  return "";
}

CclDevice::CclDevice(const RankContext& context, std::shared_ptr<CclCommunicator> communicator)
    : group_(context.group), communicator_(std::move(communicator)) {}

// From here on the destructor runs, also where this throws: a communicator that broke is given up.
CclDevice::CclDevice(const RankContext& context, std::shared_ptr<CclCommunicator> communicator, int barriers)
    : CclDevice(context, std::move(communicator)) {
  load_kernels(context);
  make(context, barriers);
}

CclDevice::~CclDevice() {
  communicator_->abort_if_broken(*group_);
  if (made_ && communicator_->get() != nullptr)
    (void)communicator_->library().calls().ncclDevCommDestroy(communicator_->get(), bytes_.data());
}

void CclDevice::load_kernels(const RankContext& context) {
  const ccl::Library& library = communicator_->library();
  one_of_a_node_first(context, [&] {
    linked_ = context.runtime->link_kernels(
        context.device(), {.text = linked_text(kBarrier),
                           .folder = header_folder(library),
                           .header = "nccl_device/impl/lsa_barrier__funcs.h",
                           .archive = "",
                           .made_by = "NCCL " + library.version(),
                           .fix = "pip install nvidia-nccl-cu13 (or -cu12, for a driver of CUDA 12), with its "
                                  "headers beside the library"});
  });
}

void CclDevice::make(const RankContext& context, int barriers) {
  const ccl::Library& library = communicator_->library();
  const ccl::Table& calls = library.calls();
  ccl::Properties properties{};
  properties.size = sizeof properties;
  properties.magic = ccl::kConfigMagic;
  properties.version = ccl::kDeviceVersion;
  context.runtime->bind_thread(context.device());
  communicator_->run(calls.ncclCommQueryProperties, communicator_->get(), &properties);
  std::string reason;
  if (!properties.deviceApiSupport)
    reason = "NCCL " + library.version() + " has nothing for kernels here: its symmetric memory is off, or not there";
  else if (properties.nLsaTeams != 1)
    reason = "NCCL " + library.version() + " finds " + std::to_string(properties.nLsaTeams) +
             " groups of these ranks that load and store each other's memory, not one";
  agree_or_throw(*group_, reason);
  ccl::DeviceRequirements wanted{};
  wanted.size = sizeof wanted;
  wanted.magic = ccl::kConfigMagic;
  wanted.version = ccl::kDeviceVersion;
  wanted.lsaBarrierCount = barriers;
  wanted.ginTrafficClass = ccl::kUnset;
  wanted.ginCustomStride = 1;
  wanted.useRuntimeVersion = true;
  bytes_.resize(properties.devCommRuntimeVersionSize);
  communicator_->run(calls.ncclDevCommCreate, communicator_->get(), &wanted, bytes_.data());
  made_ = true;
}

std::unique_ptr<Operation> make_lsa_barrier(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                            const ccl::Library& library) {
  return std::make_unique<LsaBarrier>(transport, context, spec, library);
}

std::unique_ptr<Operation> make_lsa_allreduce(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                              const ccl::Library& library, bool pushes) {
  return std::make_unique<LsaMetAllreduce>(transport, context, spec, library, pushes);
}

}  // namespace linkgauge
