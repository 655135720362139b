// The operations that are written over channels, one factory a file. All expect a case that why_not_laid_out passed.
#pragma once

#include <memory>
#include <string>

#include "pattern/operation.h"

namespace linkgauge {

// pattern/pingpong.cpp: one message there and one back, a chain on the host.
std::unique_ptr<Operation> make_pingpong(Transport& transport, const RankContext& context, const CaseSpec& spec);
// pattern/exchange.cpp: all patterns whose messages wait for none of each other.
std::unique_ptr<Operation> make_exchange(Transport& transport, const RankContext& context, const CaseSpec& spec);
// pattern/staged.cpp: barrier, reduce, reduce_scatter, and allreduce as reduce on rank 0 and broadcast (SC'24's
// reference).
std::unique_ptr<Operation> make_staged(Transport& transport, const RankContext& context, const CaseSpec& spec);
// pattern/device_patterns.cpp, device_latency.cpp: what a rank does with its own device: host_to_device to floor.
std::unique_ptr<Operation> make_device_pattern(Transport& transport, const RankContext& context, const CaseSpec& spec);
// pattern/application.cpp: an application's steps.
std::unique_ptr<Operation> make_application(Transport& transport, const RankContext& context, const CaseSpec& spec);
std::string why_not_application(const Transport& transport, const RankContext& context, const CaseSpec& spec);
// Why kernels of this rank's device cannot reach the case's memory, or "".
std::string why_not_reached(const RankContext& context, const CaseSpec& spec);
// Whether the pattern has variants of its own, which it judges itself, in place of the transport's.
bool has_own_variants(Pattern pattern);
// Where a rank sends from (`sends`) or receives into. Where data comes back, the first of a pair has all its buffers in
// source_memory and the second in target_memory, as OSU's "H D" has it.
struct End {
  MemoryKind memory;
  const AllocateOptions& options;  // the case's
};
End end_of(const CaseSpec& spec, int ranks, int rank, bool sends);
std::string why_not_device_pattern(const RankContext& context, const CaseSpec& spec);

}  // namespace linkgauge
