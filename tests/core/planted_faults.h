// Faults that are planted into a session, for tests of what watches, verifies and judges: a rank that dies, stops,
// hangs, fails, receives wrong data, or whose copies are slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/case_spec.h"
#include "base/words.h"
#include "device/device_runtime.h"
#include "measure/sampler.h"
#include "run/session.h"

namespace linkgauge {

enum class FaultKind : std::uint8_t {
  kKill,     // the process ends by SIGKILL
  kSegv,     // the process ends by SIGSEGV
  kStop,     // the process stops by SIGSTOP
  kHang,     // the rank waits for ever
  kThrow,    // the rank's operation fails
  kMemory,   // the rank's memory is used up
  kCall,     // the runtime's next call fails
  kAddress,  // a kernel writes where it may not: a GPU's context is lost, a host device's process dies of SIGSEGV
  kCorrupt,  // a byte at either end of each of the rank's large buffers is flipped once the operation is complete
  kSlow,     // each copy of the rank is made `times` times: real bytes, so that load slows it as it slows its siblings
};
template <>
inline constexpr auto kNames<FaultKind> = names("fault", "kill", "segv", "stop", "hang", "throw", "memory", "call",
                                                "address", "corrupt", "slow");

// `phase`: one that hooks see. At kVerify it is before the first and the final check's data are looked at. Data are
// corrupted at kCheck, kWarmup, kTime and kFinalCheck only; at kRelease a rank can no longer fail, only die, stop or
// hang.
struct Fault {
  FaultKind kind = FaultKind::kThrow;
  Moment phase = Moment::kIdle;
  std::int64_t sample = -1;  // number of the sample; -1: any
  int rank = 0;              // of the launch
  int times = 4;             // kSlow only
};

// Of "kind=kill phase=time sample=3 rank=0". Throws CallerError naming what is wrong.
Fault fault_from(const std::string& words);

// Something goes wrong at the moment that `fault` names, in every later case until it is cleared.
void set_fault(Session& session, std::optional<Fault> fault);

class WatchedRuntime;

// Carries a fault out on the rank that it names. Runtime calls of the case go through runtime(), which notes the
// buffers.
class FaultInjector final : public CaseHook {
 public:
  FaultInjector(Fault fault, int launch_rank, DeviceRuntime& runtime);
  ~FaultInjector() override;
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  DeviceRuntime& runtime() override;
  void begin_case(const CaseSpec& spec) override;
  void at(Moment phase, std::int64_t sample, bool after) override;

 private:
  void send(int signal);
  void flip_bytes();
  void write_astray();

  Fault fault_;
  bool here_;  // this rank is the one
  std::unique_ptr<WatchedRuntime> runtime_;
  CaseSpec spec_;
  std::thread sender_;
};

}  // namespace linkgauge
