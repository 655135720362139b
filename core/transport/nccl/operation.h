// Operations by the library's own calls: its collectives, and patterns by its sends and receives.
#pragma once

#include <memory>

#include "transport/nccl/api.h"
#include "transport/nccl/options.h"
#include "transport/operation.h"

namespace linkgauge {

std::unique_ptr<Operation> make_ccl_operation(Transport& transport, const RankContext& context, const CaseSpec& spec,
                                              const ccl::Library& library, const CclOptions& options);
// Whether it is one call of the library's, which may have settings of its own.
bool takes_call_settings(const ccl::Library& library, const CaseSpec& spec, const CclOptions& options);

}  // namespace linkgauge
