// The table for UCX against UCX's own header (1.22; every structure has grown at its end only). Nothing runs: a
// difference does not compile.
#include "transport/net/ucx/api.h"
//
#include <ucp/api/ucp.h>

#include "same_layout.h"

namespace linkgauge::ucx {
namespace {

LINKGAUGE_SAME_FIELD(Parameters, field_mask, ucp_params_t, field_mask);
LINKGAUGE_SAME_FIELD(Parameters, features, ucp_params_t, features);
LINKGAUGE_SAME_FIELD(Parameters, tag_sender_mask, ucp_params_t, tag_sender_mask);
LINKGAUGE_SAME_FIELD(Parameters, mt_workers_shared, ucp_params_t, mt_workers_shared);
LINKGAUGE_SAME_FIELD(Parameters, estimated_num_ppn, ucp_params_t, estimated_num_ppn);
LINKGAUGE_SAME_FIELD(WorkerParameters, field_mask, ucp_worker_params_t, field_mask);
LINKGAUGE_SAME_FIELD(WorkerParameters, thread_mode, ucp_worker_params_t, thread_mode);
LINKGAUGE_SAME_FIELD(WorkerParameters, cpu_mask, ucp_worker_params_t, cpu_mask);
LINKGAUGE_SAME_FIELD(WorkerParameters, flags, ucp_worker_params_t, flags);
LINKGAUGE_SAME_FIELD(EndpointParameters, field_mask, ucp_ep_params_t, field_mask);
LINKGAUGE_SAME_FIELD(EndpointParameters, address, ucp_ep_params_t, address);
static_assert(sizeof(EndpointParameters) >= sizeof(ucp_ep_params_t));
LINKGAUGE_SAME_FIELD(RequestParameters, op_attr_mask, ucp_request_param_t, op_attr_mask);
LINKGAUGE_SAME_FIELD(RequestParameters, callback, ucp_request_param_t, cb);
LINKGAUGE_SAME_FIELD(RequestParameters, user_data, ucp_request_param_t, user_data);
LINKGAUGE_SAME_FIELD(RequestParameters, memory_type, ucp_request_param_t, memory_type);
LINKGAUGE_SAME_FIELD(RequestParameters, memory, ucp_request_param_t, memh);
LINKGAUGE_SAME_FIELD(MapParameters, field_mask, ucp_mem_map_params_t, field_mask);
LINKGAUGE_SAME_FIELD(MapParameters, address, ucp_mem_map_params_t, address);
LINKGAUGE_SAME_FIELD(MapParameters, length, ucp_mem_map_params_t, length);
LINKGAUGE_SAME_FIELD(MapParameters, memory_type, ucp_mem_map_params_t, memory_type);
LINKGAUGE_SAME_FIELD(ContextFacts, field_mask, ucp_context_attr_t, field_mask);
LINKGAUGE_SAME_FIELD(ContextFacts, memory_types, ucp_context_attr_t, memory_types);
static_assert(sizeof(ContextFacts) >= sizeof(ucp_context_attr_t));
LINKGAUGE_SAME_FIELD(EndpointFacts, field_mask, ucp_ep_attr_t, field_mask);
LINKGAUGE_SAME_FIELD(EndpointFacts, transports, ucp_ep_attr_t, transports);
static_assert(sizeof(EndpointFacts) >= sizeof(ucp_ep_attr_t));
LINKGAUGE_SAME_FIELD(Ways, entries, ucp_transports_t, entries);
LINKGAUGE_SAME_FIELD(Ways, count, ucp_transports_t, num_entries);
LINKGAUGE_SAME_FIELD(Ways, entry_bytes, ucp_transports_t, entry_size);
LINKGAUGE_SAME_FIELD(Way, transport, ucp_transport_entry_t, transport_name);
LINKGAUGE_SAME_FIELD(Way, device, ucp_transport_entry_t, device_name);

LINKGAUGE_SAME_VALUE(Parameters::kFeatures, UCP_PARAM_FIELD_FEATURES);
static_assert(kFeatureTag == UCP_FEATURE_TAG && kFeatureRma == UCP_FEATURE_RMA);
LINKGAUGE_SAME_VALUE(WorkerParameters::kThreadMode, UCP_WORKER_PARAM_FIELD_THREAD_MODE);
LINKGAUGE_SAME_VALUE(WorkerParameters::kFlags, UCP_WORKER_PARAM_FIELD_FLAGS);
LINKGAUGE_SAME_VALUE(WorkerParameters::kThreadSerialized, UCS_THREAD_MODE_SERIALIZED);
LINKGAUGE_SAME_VALUE(WorkerParameters::kIgnoreRequestLeak, UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK);
LINKGAUGE_SAME_VALUE(EndpointParameters::kRemoteAddress, UCP_EP_PARAM_FIELD_REMOTE_ADDRESS);
LINKGAUGE_SAME_VALUE(RequestParameters::kCallback, UCP_OP_ATTR_FIELD_CALLBACK);
LINKGAUGE_SAME_VALUE(RequestParameters::kUserData, UCP_OP_ATTR_FIELD_USER_DATA);
LINKGAUGE_SAME_VALUE(RequestParameters::kMemoryType, UCP_OP_ATTR_FIELD_MEMORY_TYPE);
LINKGAUGE_SAME_VALUE(RequestParameters::kMemory, UCP_OP_ATTR_FIELD_MEMH);
LINKGAUGE_SAME_VALUE(RequestParameters::kMultiSend, UCP_OP_ATTR_FLAG_MULTI_SEND);
LINKGAUGE_SAME_VALUE(MapParameters::kAddress, UCP_MEM_MAP_PARAM_FIELD_ADDRESS);
LINKGAUGE_SAME_VALUE(MapParameters::kLength, UCP_MEM_MAP_PARAM_FIELD_LENGTH);
LINKGAUGE_SAME_VALUE(MapParameters::kMemoryType, UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE);
LINKGAUGE_SAME_VALUE(ContextFacts::kMemoryTypes, UCP_ATTR_FIELD_MEMORY_TYPES);
LINKGAUGE_SAME_VALUE(EndpointFacts::kTransports, UCP_EP_ATTR_FIELD_TRANSPORTS);
static_assert(kHostMemory == UCS_MEMORY_TYPE_HOST && kCudaMemory == UCS_MEMORY_TYPE_CUDA);
static_assert(kCudaManagedMemory == UCS_MEMORY_TYPE_CUDA_MANAGED);
static_assert(kRocmMemory == UCS_MEMORY_TYPE_ROCM && kRocmManagedMemory == UCS_MEMORY_TYPE_ROCM_MANAGED);
static_assert(kOk == UCS_OK && kLastError == UCS_ERR_LAST && sizeof(Status) == sizeof(ucs_status_t));

LINKGAUGE_UCX_API(LINKGAUGE_COMPARE, LINKGAUGE_COMPARE)

}  // namespace
}  // namespace linkgauge::ucx
