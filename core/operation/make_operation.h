// What carries out a case: a mechanism's own collective, or one of the operations over channels, one factory a file.
// These expect a case that why_not_laid_out passed.
#pragma once

#include <memory>
#include <string>

#include "transport/operation.h"

namespace linkgauge {

// Why these ranks cannot do the case by that transport, in one sentence, or "".
std::string why_not_carried(const Transport& transport, const RankContext& context, const CaseSpec& spec);

// Builds the case's operation over its transport: the transport's own collective, else the pattern over channels.
// Throws Unsupported with the reason.
std::unique_ptr<Operation> make_operation(Transport& transport, const RankContext& context, const CaseSpec& spec);

// operation/pingpong.cpp: one message there and one back, a chain on the host.
std::unique_ptr<Operation> make_pingpong(Transport& transport, const RankContext& context, const CaseSpec& spec);
// operation/exchange.cpp: all patterns whose messages wait for none of each other.
std::unique_ptr<Operation> make_exchange(Transport& transport, const RankContext& context, const CaseSpec& spec);
// operation/staged.cpp: barrier, reduce, reduce_scatter, and allreduce as reduce on rank 0 and broadcast (SC'24's
// reference).
std::unique_ptr<Operation> make_staged(Transport& transport, const RankContext& context, const CaseSpec& spec);
// operation/device_patterns.cpp, device_latency.cpp: what a rank does with its own device: host_to_device to floor.
std::unique_ptr<Operation> make_device_pattern(Transport& transport, const RankContext& context, const CaseSpec& spec);
// operation/application.cpp: an application's steps.
std::unique_ptr<Operation> make_application(Transport& transport, const RankContext& context, const CaseSpec& spec);
std::string why_not_application(const Transport& transport, const RankContext& context, const CaseSpec& spec);
std::string why_not_device_pattern(const RankContext& context, const CaseSpec& spec);

}  // namespace linkgauge
