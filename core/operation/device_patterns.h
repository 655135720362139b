// The operations on a rank's own device, and why a case of them cannot be, or "".
#pragma once

#include <memory>
#include <string>

#include "transport/operation.h"

namespace linkgauge {

// operation/host_stream.cpp
std::unique_ptr<Operation> make_host_stream(const RankContext& context, const CaseSpec& spec);
std::string why_not_host_stream(const CaseSpec& spec);

// operation/repeated_copies.cpp
bool is_repeated(const CaseSpec& spec);
std::unique_ptr<Operation> make_repeated_copies(const RankContext& context, const CaseSpec& spec);
std::string why_not_repeated(const CaseSpec& spec);

// operation/gemm.cpp
std::unique_ptr<Operation> make_gemm(const RankContext& context, const CaseSpec& spec);
std::string why_not_gemm(const CaseSpec& spec);

// operation/device_latency.cpp
std::unique_ptr<Operation> make_pointer_chase(const RankContext& context, const CaseSpec& spec);
std::unique_ptr<Operation> make_flag_pingpong(const RankContext& context, const CaseSpec& spec);
std::string why_not_pointer_chase(const RankContext& context, const CaseSpec& spec);
std::string why_not_flag_pingpong(const RankContext& context, const CaseSpec& spec);

}  // namespace linkgauge
