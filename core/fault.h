// Faults for tests of what watches and verifies: a rank that dies, stops, hangs, fails, or receives wrong data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "case_spec.h"
#include "device/device_runtime.h"

namespace linkgauge {

enum class FaultKind : std::uint8_t {
  kKill,     // the process ends by SIGKILL
  kStop,     // the process stops by SIGSTOP
  kHang,     // the rank waits for ever
  kThrow,    // the rank's operation fails
  kCorrupt,  // a byte at either end of each of the rank's large buffers is flipped once the operation is complete
};
FaultKind fault_kind_from(std::string_view word);  // throws CallerError

struct Fault {
  FaultKind kind = FaultKind::kThrow;
  std::string phase;         // "check", "warmup", "time" or "final_check"
  std::int64_t sample = -1;  // number of the sample; -1: any
  int rank = 0;              // of the launch
};

class WatchedRuntime;

// Carries a fault out on the rank that it names. Runtime calls of the case go through runtime(), which notes the
// buffers.
class FaultInjector {
 public:
  FaultInjector(Fault fault, int launch_rank, DeviceRuntime& runtime);
  ~FaultInjector();
  FaultInjector(const FaultInjector&) = delete;
  FaultInjector& operator=(const FaultInjector&) = delete;

  DeviceRuntime& runtime();
  void begin_case(const CaseSpec& spec);
  void at(const char* phase, std::int64_t sample, bool after);

 private:
  void flip_bytes();

  Fault fault_;
  bool here_;  // this rank is the one
  std::unique_ptr<WatchedRuntime> runtime_;
  CaseSpec spec_;
};

}  // namespace linkgauge
