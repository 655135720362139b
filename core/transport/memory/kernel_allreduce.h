// Allreduce by kernels that reach into the peers' memory: `one_shot`, where every rank gets all peers' operands, read
// by itself or pushed by them into a scratch of its own, and `two_shot`, a reduce-scatter by peer reads and then an
// allgather of the results, pulled or pushed.
//
// Ranks meet between the steps on the device, inside one kernel, or on the host, between launches; one_shot that pushes
// has no meetings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "transport/memory/kernel_options.h"
#include "transport/operation.h"

namespace linkgauge {

bool is_kernel_algorithm(std::string_view word);
// Of a case with one of them.
bool is_one_shot(const Mechanism& by);

// "" or why the case's algorithm word does not fit it.
std::string why_not_kernel_allreduce(const RankContext& context, const CaseSpec& spec, const KernelOptions& options);
std::unique_ptr<Operation> make_kernel_allreduce(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                                 const KernelOptions& options);
// The three ways; kernel_allreduce_host.cpp, kernel_allreduce_device.cpp and kernel_allreduce_push.cpp.
std::unique_ptr<Operation> make_host_met_allreduce(Transport& transport, const RankContext& context,
                                                   const CaseSpec& spec, bool pushes);
std::unique_ptr<Operation> make_device_met_allreduce(Transport& transport, const RankContext& context,
                                                     const CaseSpec& spec, bool pushes);
std::unique_ptr<Operation> make_pushed_allreduce(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                                 const KernelOptions& options);
enum class AllreduceWay : std::uint8_t { kHostMet, kDeviceMet, kPushed };
// The way that the options say or, where they do not, the one that measured best.
AllreduceWay allreduce_way(const RankContext& context, const CaseSpec& spec, const KernelOptions& options);

}  // namespace linkgauge
