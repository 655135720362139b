// The CUDA runtime against the stand-in driver: what every call does, and what becomes of each fault.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <vector>

#include "base/errors.h"
#include "device/cuda_driver.h"
#include "device/device_runtime.h"
#include "device/host_placement.h"
#include "kernels/kernel_source.h"
#include "kernels/kernels.h"
#include "refused.h"
#include "stand_in_control.h"

namespace linkgauge {
namespace {

const std::string kStandIns = LINKGAUGE_STAND_IN_FOLDER;

class CudaRuntime : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* variable : {"CUDA_VISIBLE_DEVICES", "LINKGAUGE_STAND_IN_NVRTC_FAILS"}) unsetenv(variable);
    cache_ = std::filesystem::temp_directory_path() / ("linkgauge_gpu_test_" + std::to_string(getpid()));
    std::filesystem::remove_all(cache_);
    trace_ = cache_.string() + ".trace";
    std::filesystem::remove(trace_);
    setenv("LINKGAUGE_STAND_IN_NVRTC_TRACE", trace_.c_str(), 1);
    control_.configure("");
  }
  void TearDown() override {
    std::filesystem::remove_all(cache_);
    std::filesystem::remove(trace_);
  }

  RuntimeRequest request(std::vector<int> devices = {}) const {
    RuntimeRequest made;
    made.which = "cuda";
    made.devices = std::move(devices);
    made.kernel_cache = cache_.string();
    made.library_folders = {kStandIns + "/nvrtc12"};
    return made;
  }
  std::shared_ptr<DeviceRuntime> open(const std::string& settings = "", std::vector<int> devices = {}) const {
    control_.configure(settings);
    auto runtime = open_runtime(request(std::move(devices)));
    runtime->bind_thread(0);
    return runtime;
  }
  static int parts(const char* architecture = "sm_90") { return static_cast<int>(kernel_parts(architecture).size()); }
  // How often the stand-in compiler was asked.
  int compilations() const {
    std::ifstream file(trace_);
    int lines = 0;
    for (std::string line; std::getline(file, line);) ++lines;
    return lines;
  }

  StandInControl control_{"libcuda.so.1"};
  std::filesystem::path cache_;
  std::string trace_;
};

// --- opening -----------------------------------------------------------------------------------------------------

TEST_F(CudaRuntime, NumbersDevicesInPciOrder) {
  const auto runtime = open("devices=3");
  ASSERT_EQ(runtime->count(), 3);
  EXPECT_EQ(runtime->name(), "cuda");
  std::string before;
  for (int i = 0; i < 3; ++i) {
    const DeviceInfo info = runtime->describe(i);
    EXPECT_EQ(info.ordinal, i);
    EXPECT_LT(before, info.pci_address);
    before = info.pci_address;
  }
  // The stand-in's last device has the lowest address; its UUID starts with its own ordinal.
  EXPECT_EQ(runtime->describe(0).uuid.substr(0, 6), "GPU-20");
  EXPECT_EQ(runtime->describe(0).uuid.size(), std::strlen("GPU-00000000-0000-0000-0000-000000000000"));
}

TEST_F(CudaRuntime, DescribesWithTheFactsOfNvml) {
  const auto runtime = open();
  const DeviceInfo info = runtime->describe(0);
  EXPECT_EQ(info.architecture, "sm_90");
  EXPECT_EQ(info.multiprocessors, 4);
  EXPECT_EQ(info.memory_bytes, std::size_t{1} << 30);
  EXPECT_EQ(info.pci_address, "0000:1b:00.0");
  EXPECT_EQ(info.serial, "16500" + std::to_string(0x1b));
  EXPECT_EQ(info.vbios, "96.00.A5.00.01");
  expect_contains(runtime->version(), {"CUDA 13.0", "driver 580.00.00"});
}

TEST_F(CudaRuntime, OpensOnlyTheDevicesAskedFor) {
  const auto runtime = open("devices=4", {3, 1});
  ASSERT_EQ(runtime->count(), 2);
  EXPECT_EQ(runtime->describe(0).ordinal, 3);
  EXPECT_EQ(runtime->describe(1).ordinal, 1);
  EXPECT_THROW((void)runtime->describe(2), CallerError);
  EXPECT_EQ(control_.calls("cuDevicePrimaryCtxRetain"), 1);  // a context costs memory: only where it is used
}

TEST_F(CudaRuntime, SaysWhyThereIsNothingToOpen) {
  const auto reason = [&](const std::string& settings) {
    control_.configure(settings);
    return message_of<Unsupported>([&] { (void)open_runtime(request()); });
  };
  expect_contains(reason("devices=0"), {"finds no device", "CUDA_ERROR_NO_DEVICE", "100"});
  expect_contains(reason("fail=cuInit:1:803"), {"different versions", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"});
  expect_contains(reason("fail=cuInit:1:34"), {"stub"});
  expect_contains(reason("fail=cuInit:1:800"), {"no permission", "/dev/nvidiactl"});
  expect_contains(reason("driver=10020"), {"too old", "CUDA 10.2", "11.4"});
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  expect_contains(reason(""), {"CUDA_VISIBLE_DEVICES=\"\" hides them"});
}

TEST_F(CudaRuntime, SaysThatAHiddenDeviceIsHidden) {
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  control_.configure("devices=4");
  const std::string message = message_of<Unsupported>([&] { (void)open_runtime(request({0, 2})); });
  expect_contains(message, {"cuda:2", "there are 1", "CUDA_VISIBLE_DEVICES=1"});
}

// --- memory ------------------------------------------------------------------------------------------------------

TEST_F(CudaRuntime, AllocatesAndGivesBackEveryKind) {
  const auto runtime = open();
  const int before = control_.live();
  {
    const Buffer device(*runtime, 0, MemoryKind::kDevice, 1000);
    const Buffer pinned(*runtime, 0, MemoryKind::kPinned, 1000);
    const Buffer combined(*runtime, 0, MemoryKind::kPinned, 1000, {-1, true, false});
    const Buffer pageable(*runtime, 0, MemoryKind::kPageable, 1000);
    const Buffer managed(*runtime, 1, MemoryKind::kManaged, 1000);
    const Buffer huge(*runtime, 0, MemoryKind::kPinned, 1 << 22, {-1, false, true});
    EXPECT_EQ(control_.calls("cuMemAlloc_v2"), 1);
    EXPECT_EQ(control_.calls("cuMemHostAlloc"), 2);
    EXPECT_EQ(control_.calls("cuMemHostRegister_v2"), 1);
    EXPECT_EQ(control_.calls("cuMemAllocManaged"), 1);
    EXPECT_EQ(control_.live(), before + 5);  // pageable memory is not the driver's
  }
  EXPECT_EQ(control_.live(), before);
  EXPECT_EQ(control_.calls("cuMemHostUnregister"), 1);
}

TEST_F(CudaRuntime, OutOfMemoryNamesCallSizeAndWhatIsFree) {
  const auto runtime = open("memory=8388608");
  const Buffer held(*runtime, 0, MemoryKind::kDevice, 4 << 20);
  const std::string message =
      message_of<MemoryError>([&] { (void)runtime->allocate(0, MemoryKind::kDevice, 6 << 20, {}); });
  expect_contains(message,
                  {"cuMemAlloc_v2", "6291456", "CUDA_ERROR_OUT_OF_MEMORY (2)", "device 0", "4194304 of 8388608"});
  EXPECT_EQ(runtime->memory(0).free_bytes, std::size_t{4} << 20);
  EXPECT_EQ(runtime->memory(1).free_bytes, std::size_t{8} << 20);
}

TEST_F(CudaRuntime, ManagedMemoryIsNeverLargerThanWhatIsFree) {
  const auto runtime = open("memory=8388608");
  expect_contains(message_of<MemoryError>([&] { (void)runtime->allocate(0, MemoryKind::kManaged, 9 << 20, {}); }),
                  {"managed", "9437184", "8388608"});
  EXPECT_EQ(control_.calls("cuMemAllocManaged"), 0);
}

TEST_F(CudaRuntime, FailedRegistrationGivesThePagesBack) {
  const auto runtime = open("fail=cuMemHostRegister_v2:1:2");
  const int before = control_.live();
  EXPECT_THROW((void)runtime->allocate(0, MemoryKind::kPinned, 1 << 20, {-1, false, true}), MemoryError);
  EXPECT_EQ(control_.live(), before);
  const Buffer second(*runtime, 0, MemoryKind::kPinned, 1 << 20, {-1, false, true});
  EXPECT_NE(second.data(), nullptr);
}

TEST_F(CudaRuntime, HostMemoryOnANodeThatIsNotThereSaysSo) {
  const auto runtime = open();
  const int node = numa_node_count() + 7;
  expect_contains(message_of<MemoryError>([&] {
                    (void)runtime->allocate(0, MemoryKind::kPageable, 4096, {node, false, false});
                  }),
                  {"NUMA node " + std::to_string(node)});
}

// --- queues ------------------------------------------------------------------------------------------------------

TEST_F(CudaRuntime, CopiesByTheCallThatIsDue) {
  const auto runtime = open();
  const std::vector<char> text(4096, 'x');
  Buffer host(*runtime, 0, MemoryKind::kPinned, text.size());
  Buffer first(*runtime, 0, MemoryKind::kDevice, text.size());
  Buffer second(*runtime, 1, MemoryKind::kDevice, text.size());
  std::memcpy(host.data(), text.data(), text.size());
  Stream stream(*runtime, 0);
  runtime->copy_async(first.data(), 0, host.data(), -1, text.size(), stream.handle());
  EXPECT_EQ(control_.calls("cuMemcpyAsync"), 1);
  EXPECT_EQ(control_.calls("cuMemcpyPeerAsync"), 0);
  runtime->copy_async(second.data(), 1, first.data(), 0, text.size(), stream.handle());
  EXPECT_EQ(control_.calls("cuMemcpyPeerAsync"), 1);
  stream.synchronize();
  EXPECT_TRUE(runtime->done(stream.handle()));
  std::vector<char> back(text.size());
  runtime->copy_now(back.data(), -1, second.data(), 1, back.size());
  EXPECT_EQ(back, text);
}

TEST_F(CudaRuntime, EventsOrderStreamsAndTakeTheTime) {
  const auto runtime = open();
  Stream first(*runtime, 0);
  Stream second(*runtime, 0);
  Buffer flag(*runtime, 0, MemoryKind::kPinned, 64);
  std::memset(flag.data(), 0, 64);
  auto* open_flag = static_cast<std::uint64_t*>(flag.data());
  std::uint64_t* gave_up = open_flag + 1;
  std::uint64_t value = 1;
  std::uint64_t limit = ~std::uint64_t{0};
  void* arguments[] = {&open_flag, &value, &limit, &gave_up};
  const EventHandle start = runtime->create_event(0);
  const EventHandle stop = runtime->create_event(0);
  runtime->launch(runtime->kernel(0, kKernelGate), {1, 1, 0}, arguments, first.handle());
  runtime->record(start, first.handle());
  runtime->wait(second.handle(), start);
  runtime->record(stop, second.handle());
  EXPECT_FALSE(runtime->done(second.handle()));  // held by the gate
  reinterpret_cast<std::atomic<std::uint64_t>*>(open_flag)->store(1);
  runtime->synchronize_event(stop);
  EXPECT_GE(runtime->elapsed_ns(start, stop), 0);
  EXPECT_EQ(*gave_up, 0U);
  runtime->destroy_event(start);
  runtime->destroy_event(stop);
}

TEST_F(CudaRuntime, AGateThatIsNeverOpenedGivesUp) {
  const auto runtime = open();
  Stream stream(*runtime, 0);
  Buffer flag(*runtime, 0, MemoryKind::kPinned, 64);
  std::memset(flag.data(), 0, 64);
  auto* open_flag = static_cast<std::uint64_t*>(flag.data());
  std::uint64_t* gave_up = open_flag + 1;
  std::uint64_t value = 1;
  std::uint64_t limit = 1000;
  void* arguments[] = {&open_flag, &value, &limit, &gave_up};
  runtime->launch(runtime->kernel(0, kKernelGate), {1, 1, 0}, arguments, stream.handle());
  stream.synchronize();
  EXPECT_EQ(*gave_up, 1U);
}

TEST_F(CudaRuntime, ErrorsNameCallCodeAndDevice) {
  const auto runtime = open("fail=cuStreamSynchronize:1:700");
  Stream stream(*runtime, 0);
  try {
    stream.synchronize();
    FAIL() << "no error";
  } catch (const RuntimeCallError& error) {
    EXPECT_EQ(error.call(), "cuStreamSynchronize");
    EXPECT_EQ(error.code_name(), "CUDA_ERROR_ILLEGAL_ADDRESS");
    EXPECT_EQ(error.code(), 700);
    EXPECT_EQ(error.device(), 0);
    expect_contains(error.what(), {"illegal memory access"});
  }
}

// --- peers and shared handles --------------------------------------------------------------------------------------

TEST_F(CudaRuntime, PeerAccessWaitsUntilThisProcessUsesThePeer) {
  const auto runtime = open();
  EXPECT_EQ(runtime->peer_access(0, 1), "");
  EXPECT_EQ(control_.calls("cuDevicePrimaryCtxRetain"), 1);  // no context on the peer just for this
  EXPECT_EQ(control_.calls("cuCtxEnablePeerAccess"), 0);
  const Buffer buffer(*runtime, 1, MemoryKind::kDevice, 64);
  EXPECT_EQ(control_.calls("cuCtxEnablePeerAccess"), 1);
  const Buffer second(*runtime, 1, MemoryKind::kDevice, 64);
  EXPECT_EQ(control_.calls("cuCtxEnablePeerAccess"), 1);
}

TEST_F(CudaRuntime, PeerAccessOrTheReason) {
  const auto runtime = open();
  runtime->bind_thread(1);
  runtime->bind_thread(0);
  EXPECT_EQ(runtime->peer_access(0, 0), "");
  EXPECT_EQ(runtime->peer_access(0, 1), "");
  EXPECT_EQ(runtime->peer_access(1, 0), "");
  EXPECT_EQ(runtime->peer_access(0, 1), "");  // the stand-in says that it is enabled already
  expect_contains(open("peer=0")->peer_access(0, 1), {"device 0", "device 1", "no peer path"});
  const auto refused = open("fail=cuCtxEnablePeerAccess:1:217");
  expect_contains(refused->peer_access(1, 0),
                  {"device 1", "cuCtxEnablePeerAccess", "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED (217)"});
  RuntimeRequest off = request();
  off.peer_access = false;
  control_.configure("");
  expect_contains(open_runtime(off)->peer_access(0, 1), {"off in this launch"});
  EXPECT_EQ(control_.calls("cuCtxEnablePeerAccess"), 0);
}

TEST_F(CudaRuntime, AnotherProcessOpensWhatIsShared) {
  const auto runtime = open();
  Buffer buffer(*runtime, 0, MemoryKind::kDevice, 3 << 20);
  std::memset(buffer.data(), 1, buffer.size());
  const SharedHandle handle = runtime->share(buffer.data());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // A fresh runtime in the child; _exit, so that no test machinery runs twice.
    try {
      const auto mine = open();
      void* memory = mine->open_shared(1, handle);
      void* again = mine->open_shared(1, handle);
      bool good = memory == again && static_cast<char*>(memory)[12345] == 1;
      Stream stream(*mine, 1);
      Buffer local(*mine, 1, MemoryKind::kDevice, 3 << 20);
      std::memset(local.data(), 7, local.size());
      // Opened memory is this process's own mapping, not a peer's buffer.
      mine->copy_async(memory, -1, local.data(), 1, local.size(), stream.handle());
      stream.synchronize();
      good = good && control_.calls("cuMemcpyPeerAsync") == 0 && control_.calls("cuIpcOpenMemHandle_v2") == 1;
      mine->close_shared(again);
      good = good && control_.calls("cuIpcCloseMemHandle") == 0;
      mine->close_shared(memory);
      good = good && control_.calls("cuIpcCloseMemHandle") == 1;
      _exit(good ? 0 : 1);
    } catch (...) {
      _exit(2);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(static_cast<char*>(buffer.data())[(3 << 20) - 1], 7);
}

TEST_F(CudaRuntime, AHandleThatCannotBeOpenedSaysWhichCallAndWhy) {
  const auto runtime = open();
  Buffer buffer(*runtime, 0, MemoryKind::kDevice, 64);
  const SharedHandle own = runtime->share(buffer.data());
  expect_contains(message_of<RuntimeCallError>([&] { (void)runtime->open_shared(0, own); }),
                  {"cuIpcOpenMemHandle_v2", "CUDA_ERROR_INVALID_CONTEXT (201)", "device 0"});
  EXPECT_THROW((void)runtime->open_shared(0, SharedHandle{}), CallerError);
  Buffer pinned(*runtime, 0, MemoryKind::kPinned, 64);
  EXPECT_FALSE(runtime->can_share(MemoryKind::kPinned));
  EXPECT_THROW((void)runtime->share(pinned.data()), Unsupported);
}

// --- fabric handles ----------------------------------------------------------------------------------------------

constexpr AllocateOptions kFabric{.fabric_handle = true};

TEST_F(CudaRuntime, AnotherProcessOpensAHandleOfTheFabricAndLeavesNothing) {
  const auto runtime = open("fail=cuIpcGetMemHandle:1:1");
  const int before = control_.live();
  {
    Buffer buffer(*runtime, 0, MemoryKind::kDevice, (3 << 20) + 5, kFabric);
    std::memset(buffer.data(), 1, buffer.size());
    const SharedHandle handle = runtime->share(buffer.data());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        const auto mine = open();
        const int empty = control_.live();
        void* memory = mine->open_shared(1, handle);
        void* again = mine->open_shared(0, handle);
        bool good = memory == again && static_cast<char*>(memory)[12345] == 1;
        good = good && control_.calls("cuMemImportFromShareableHandle") == 1 && control_.calls("cuMemSetAccess") == 2;
        mine->copy_now(memory, 0, "7", -1, 1);
        mine->close_shared(again);
        good = good && control_.calls("cuMemUnmap") == 0;
        mine->close_shared(memory);
        good = good && control_.live() == empty;
        _exit(good ? 0 : 1);
      } catch (...) {
        _exit(2);
      }
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_EQ(static_cast<char*>(buffer.data())[0], '7');
  }
  EXPECT_EQ(control_.live(), before);
}

TEST_F(CudaRuntime, FabricMemoryIsReachedByTheDevicesOfThisProcessThatMayBePeers) {
  const auto runtime = open("devices=3");
  runtime->bind_thread(1);  // the third is not used here
  Buffer buffer(*runtime, 0, MemoryKind::kDevice, 64, kFabric);
  EXPECT_EQ(control_.calls("cuMemSetAccess"), 2);
  const auto apart = open("devices=3;peer=0");
  apart->bind_thread(1);
  Buffer alone(*apart, 0, MemoryKind::kDevice, 64, kFabric);
  EXPECT_EQ(control_.calls("cuMemSetAccess"), 1);
}

TEST_F(CudaRuntime, FabricHandlesThatAreRefusedSayWhichCallAndWhatIsMissing) {
  const auto make = [&](const std::string& settings) {
    return [this, settings] { Buffer(*open(settings), 0, MemoryKind::kDevice, 64, kFabric); };
  };
  expect_contains(message_of<Unsupported>(make("fabric=0")),
                  {"device 0", "CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED is 0", "CUDA 12.4"});
  for (const auto& [code, name] :
       {std::pair{"800", "CUDA_ERROR_NOT_PERMITTED (800)"}, std::pair{"801", "CUDA_ERROR_NOT_SUPPORTED (801)"}}) {
    expect_contains(message_of<Unsupported>(make(std::string("fail=cuMemCreate:1:") + code)),
                    {"cuMemCreate with CU_MEM_HANDLE_TYPE_FABRIC", name, "device 0", "/dev/nvidia-caps-imex-channels"});
  }
  expect_contains(message_of<MemoryError>(make("memory=1048576")), {"cuMemCreate", "2097152 bytes"});
  // What came before a call that fails is given back.
  for (const char* call : {"cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    const auto runtime = open(std::string("fail=") + call + ":1:1");
    const int before = control_.live();
    expect_contains(message_of<RuntimeCallError>([&] { Buffer(*runtime, 0, MemoryKind::kDevice, 64, kFabric); }),
                    {call});
    EXPECT_EQ(control_.live(), before) << call;
  }
  const auto runtime = open();
  Buffer buffer(*runtime, 0, MemoryKind::kDevice, 64, kFabric);
  const SharedHandle handle = runtime->share(buffer.data());
  for (const char* call : {"cuMemImportFromShareableHandle:1:800", "cuMemMap:1:1", "cuMemSetAccess:1:1"}) {
    const auto opener = open(std::string("fail=") + call);
    const int before = control_.live();
    EXPECT_THROW((void)opener->open_shared(0, handle), Error) << call;
    EXPECT_EQ(control_.live(), before) << call;
  }
}

// --- kernels -----------------------------------------------------------------------------------------------------

TEST_F(CudaRuntime, CompilesOnceAndKeepsTheImage) {
  {
    const auto runtime = open();
    EXPECT_NE(runtime->kernel(0, kKernelFill), nullptr);
    EXPECT_NE(runtime->kernel(1, kKernelCopyBulk), nullptr);
    EXPECT_EQ(compilations(), parts());  // both devices are alike
    EXPECT_EQ(control_.calls("cuModuleLoadData"), 2 * parts());
  }
  const auto again = open();
  EXPECT_NE(again->kernel(0, kKernelFill), nullptr);
  EXPECT_EQ(compilations(), parts());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(cache_), std::filesystem::directory_iterator()), parts());
}

TEST_F(CudaRuntime, ACorruptImageIsCompiledAnew) {
  (void)open()->kernel(0, kKernelFill);
  const std::filesystem::path image = std::filesystem::directory_iterator(cache_)->path();
  for (const std::uintmax_t kept : {std::filesystem::file_size(image) - 1, std::uintmax_t{4}, std::uintmax_t{0}}) {
    std::filesystem::resize_file(image, kept);
    const int before = compilations();
    (void)open()->kernel(0, kKernelFill);
    EXPECT_EQ(compilations(), before + 1) << kept << " bytes kept";
  }
  std::fstream file(image, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('~');
  file.close();
  const int before = compilations();
  (void)open()->kernel(0, kKernelFill);
  EXPECT_EQ(compilations(), before + 1);
}

TEST_F(CudaRuntime, AnImageThatTheDriverRefusesIsCompiledAnew) {
  (void)open()->kernel(0, kKernelFill);
  (void)open("fail=cuModuleLoadData:1:200")->kernel(0, kKernelFill);
  EXPECT_EQ(compilations(), parts() + 1);
}

TEST_F(CudaRuntime, ACacheThatCannotBeWrittenOnlyCostsTime) {
  RuntimeRequest unwritable = request();
  unwritable.kernel_cache = "/proc/self/no_folder_can_be_here";
  for (int i = 0; i < 2; ++i) {
    const auto runtime = open_runtime(unwritable);
    EXPECT_NE(runtime->kernel(0, kKernelFill), nullptr);
  }
  EXPECT_EQ(compilations(), 2 * parts());
}

TEST_F(CudaRuntime, KernelsOfAnotherArchitectureAreOtherImages) {
  (void)open("sm=90")->kernel(0, kKernelFill);
  const auto older = open("sm=80");
  (void)older->kernel(0, kKernelFill);
  EXPECT_EQ(compilations(), parts() + parts("sm_80"));
  expect_contains(message_of<Unsupported>([&] { (void)older->kernel(0, kKernelCopyBulk); }), {"lg_copy_bulk", "sm_80"});
}

// The stand-in compiler knows none above 100.
TEST_F(CudaRuntime, ADeviceNewerThanTheCompilerGetsPtxOfTheNewestThatItKnows) {
  EXPECT_NE(open("sm=100")->kernel(0, kKernelCopyBulk), nullptr);
  EXPECT_EQ(compilations(), parts("sm_100"));
  EXPECT_NE(open("sm=130")->kernel(0, kKernelCopyBulk), nullptr);
  EXPECT_EQ(compilations(), 2 * parts("sm_100"));
  EXPECT_NE(open("sm=121")->kernel(0, kKernelFill), nullptr);  // the same PTX, kept
  EXPECT_EQ(compilations(), 2 * parts("sm_100"));
}

TEST_F(CudaRuntime, ACompilerNewerThanTheDriverIsPassedOver) {
  RuntimeRequest both = request();
  both.library_folders = {kStandIns + "/nvrtc13", kStandIns + "/nvrtc12"};
  control_.configure("driver=12040");
  EXPECT_NE(open_runtime(both)->kernel(0, kKernelFill), nullptr);
  both.library_folders = {kStandIns + "/nvrtc13"};
  both.kernel_cache += "_other";
  const auto runtime = open_runtime(both);
  try {
    (void)runtime->kernel(0, kKernelFill);
    GTEST_SKIP() << "this machine has an NVRTC of CUDA 12 of its own";
  } catch (const Unsupported& error) {
    expect_contains(error.what(), {"supports CUDA 12", "NVRTC 13.9", "nvidia-cuda-nvrtc-cu12"});
  }
}

TEST_F(CudaRuntime, CompilerErrorsComeWithTheLog) {
  setenv("LINKGAUGE_STAND_IN_NVRTC_FAILS", "1", 1);
  const auto runtime = open();
  expect_contains(message_of<RuntimeCallError>([&] { (void)runtime->kernel(0, kKernelFill); }),
                  {"nvrtcCompileProgram", "NVRTC_ERROR_COMPILATION (6)", "asked to fail"});
}

TEST_F(CudaRuntime, KernelsRunWithTheArgumentsOfKernelsH) {
  const auto runtime = open();
  Stream stream(*runtime, 0);
  const std::uint64_t bytes = 100'003;
  Buffer source(*runtime, 0, MemoryKind::kDevice, bytes);
  Buffer target(*runtime, 1, MemoryKind::kDevice, bytes);
  Buffer result(*runtime, 0, MemoryKind::kPinned, sizeof(CheckResult));
  const auto fill = [&](const Buffer& buffer, std::int32_t rank) {
    void* data = buffer.data();
    std::uint64_t size = bytes, seed = 11, offset = 0;
    std::uint32_t datatype = 1, op = kRawBytes;
    std::int32_t ranks = 2;
    void* arguments[] = {&data, &size, &datatype, &op, &seed, &rank, &ranks, &offset};
    runtime->launch(runtime->kernel(0, kKernelFill), {8, 128, 0}, arguments, stream.handle());
  };
  const auto check = [&](const Buffer& buffer) {
    auto* found = static_cast<CheckResult*>(result.data());
    *found = {0, ~std::uint64_t{0}, 0, 0};
    const void* data = buffer.data();
    std::uint64_t size = bytes, seed = 11, offset = 0;
    std::uint32_t datatype = 1, op = kRawBytes;
    std::int32_t rank = 0, ranks = 2;
    void* arguments[] = {&data, &size, &datatype, &op, &seed, &rank, &ranks, &offset, &found};
    runtime->launch(runtime->kernel(0, kKernelCheck), {8, 128, 0}, arguments, stream.handle());
    stream.synchronize();
    return *found;
  };
  const auto copy = [&] {
    void* to = target.data();
    const void* from = source.data();
    std::uint64_t size = bytes;
    void* arguments[] = {&to, &from, &size};
    runtime->launch(runtime->kernel(0, kKernelCopy), {8, 128, 0}, arguments, stream.handle());
  };
  fill(source, 0);
  fill(target, -1);  // poison
  EXPECT_GT(check(target).bad_bytes, bytes * 9 / 10);
  copy();
  EXPECT_EQ(check(target).bad_bytes, 0U);
  // A kernel that is wrong only in its last launch, and only in its last byte, is caught.
  control_.configure("break=lg_copy:3");
  for (int i = 0; i < 3; ++i) {
    fill(target, -1);
    copy();
  }
  const CheckResult broken = check(target);
  EXPECT_EQ(broken.bad_bytes, 1U);
  EXPECT_EQ(broken.first_bad_offset, bytes - 1);
  EXPECT_NE(broken.expected, broken.found);
}

// Whatever call fails, the runtime reports it as one of its own errors, and gives back what it had.
TEST_F(CudaRuntime, AnyCallMayFailWithoutALeak) {
  const std::vector<std::string> calls = {
      "cuDeviceGetName",  "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent",    "cuMemAlloc_v2",
      "cuMemHostAlloc",   "cuStreamCreate",           "cuEventCreate",      "cuEventRecord",
      "cuModuleLoadData", "cuModuleGetFunction",      "cuFuncGetAttribute", "cuLaunchKernel",
      "cuMemcpyAsync",    "cuStreamSynchronize",      "cuMemcpyPeerAsync"};
  const auto work = [&] {
    const auto runtime = open_runtime(request());
    runtime->bind_thread(0);
    const Buffer first(*runtime, 0, MemoryKind::kDevice, 4096);
    const Buffer second(*runtime, 1, MemoryKind::kDevice, 4096);
    const Buffer host(*runtime, 0, MemoryKind::kPinned, 4096);
    Stream stream(*runtime, 0);
    struct EventScope {
      DeviceRuntime& runtime;
      EventHandle event;
      ~EventScope() { runtime.destroy_event(event); }
    } event{*runtime, runtime->create_event(0)};
    runtime->launch(runtime->kernel(0, kKernelEmpty), {1, 1, 0}, nullptr, stream.handle());
    runtime->copy_async(first.data(), 0, host.data(), -1, 4096, stream.handle());
    runtime->copy_async(second.data(), 1, first.data(), 0, 4096, stream.handle());
    runtime->record(event.event, stream.handle());
    stream.synchronize();
  };
  control_.configure("");
  const int before = control_.live();
  EXPECT_NO_THROW(work());
  EXPECT_EQ(control_.live(), before);
  for (const std::string& call : calls) {
    control_.configure("fail=" + call + ":1:719;fail=" + call + ":2:719;fail=" + call + ":3:719");
    const std::string message = message_of<Error>(work);
    expect_contains(message, {call});
    EXPECT_EQ(control_.live(), before) << call;
  }
}

}  // namespace
}  // namespace linkgauge
