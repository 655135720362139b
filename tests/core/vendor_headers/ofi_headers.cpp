// The table for libfabric against libfabric's own headers (1.17 and newer). Nothing runs: a difference does not
// compile.
#include "transport/net/ofi/worker.h"
//
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include "same_layout.h"

namespace linkgauge::ofi {
namespace {

LINKGAUGE_SAME_FIELD(Object, calls, fid, ops);
LINKGAUGE_SAME_FIELD(ObjectCalls, close, fi_ops, close);
LINKGAUGE_SAME_FIELD(ObjectCalls, bind, fi_ops, bind);
LINKGAUGE_SAME_FIELD(ObjectCalls, control, fi_ops, control);
LINKGAUGE_SAME_FIELD(SendFacts, op_flags, fi_tx_attr, op_flags);
LINKGAUGE_SAME_FIELD(SendFacts, msg_order, fi_tx_attr, msg_order);
LINKGAUGE_SAME_FIELD(SendFacts, rma_iov_limit, fi_tx_attr, rma_iov_limit);
LINKGAUGE_SAME_FIELD(ReceiveFacts, msg_order, fi_rx_attr, msg_order);
LINKGAUGE_SAME_FIELD(EndpointFacts, type, fi_ep_attr, type);
LINKGAUGE_SAME_FIELD(EndpointFacts, max_msg_size, fi_ep_attr, max_msg_size);
LINKGAUGE_SAME_FIELD(DomainFacts, name, fi_domain_attr, name);
LINKGAUGE_SAME_FIELD(DomainFacts, threading, fi_domain_attr, threading);
LINKGAUGE_SAME_FIELD(DomainFacts, resource_mgmt, fi_domain_attr, resource_mgmt);
LINKGAUGE_SAME_FIELD(DomainFacts, av_type, fi_domain_attr, av_type);
LINKGAUGE_SAME_FIELD(DomainFacts, mr_mode, fi_domain_attr, mr_mode);
LINKGAUGE_SAME_FIELD(FabricFacts, name, fi_fabric_attr, name);
LINKGAUGE_SAME_FIELD(FabricFacts, prov_name, fi_fabric_attr, prov_name);
LINKGAUGE_SAME_FIELD(Info, caps, fi_info, caps);
LINKGAUGE_SAME_FIELD(Info, mode, fi_info, mode);
LINKGAUGE_SAME_FIELD(Info, tx_attr, fi_info, tx_attr);
LINKGAUGE_SAME_FIELD(Info, rx_attr, fi_info, rx_attr);
LINKGAUGE_SAME_FIELD(Info, ep_attr, fi_info, ep_attr);
LINKGAUGE_SAME_FIELD(Info, domain_attr, fi_info, domain_attr);
LINKGAUGE_SAME_FIELD(Info, fabric_attr, fi_info, fabric_attr);
LINKGAUGE_SAME_FIELD(Fabric, calls, fid_fabric, ops);
LINKGAUGE_SAME_FIELD(FabricCalls, domain, fi_ops_fabric, domain);
LINKGAUGE_SAME_FIELD(AddressesAsked, type, fi_av_attr, type);
LINKGAUGE_SAME_FIELD(AddressesAsked, flags, fi_av_attr, flags);
static_assert(sizeof(AddressesAsked) >= sizeof(fi_av_attr));
LINKGAUGE_SAME_FIELD(QueueAsked, size, fi_cq_attr, size);
LINKGAUGE_SAME_FIELD(QueueAsked, format, fi_cq_attr, format);
LINKGAUGE_SAME_FIELD(QueueAsked, wait_set, fi_cq_attr, wait_set);
static_assert(sizeof(QueueAsked) >= sizeof(fi_cq_attr));
LINKGAUGE_SAME_FIELD(Domain, calls, fid_domain, ops);
LINKGAUGE_SAME_FIELD(Domain, registration, fid_domain, mr);
LINKGAUGE_SAME_FIELD(DomainCalls, av_open, fi_ops_domain, av_open);
LINKGAUGE_SAME_FIELD(DomainCalls, cq_open, fi_ops_domain, cq_open);
LINKGAUGE_SAME_FIELD(DomainCalls, endpoint, fi_ops_domain, endpoint);
LINKGAUGE_SAME_FIELD(RegistrationCalls, regattr, fi_ops_mr, regattr);
LINKGAUGE_SAME_FIELD(RegistrationAsked, mr_iov, fi_mr_attr, mr_iov);
LINKGAUGE_SAME_FIELD(RegistrationAsked, access, fi_mr_attr, access);
LINKGAUGE_SAME_FIELD(RegistrationAsked, requested_key, fi_mr_attr, requested_key);
LINKGAUGE_SAME_FIELD(RegistrationAsked, iface, fi_mr_attr, iface);
LINKGAUGE_SAME_FIELD(RegistrationAsked, device, fi_mr_attr, device);
static_assert(sizeof(RegistrationAsked) >= sizeof(fi_mr_attr));
LINKGAUGE_SAME_FIELD(Registration, descriptor, fid_mr, mem_desc);
LINKGAUGE_SAME_FIELD(Registration, key, fid_mr, key);
LINKGAUGE_SAME_FIELD(Addresses, calls, fid_av, ops);
LINKGAUGE_SAME_FIELD(AddressCalls, insert, fi_ops_av, insert);
LINKGAUGE_SAME_FIELD(QueueEntry, context, fi_cq_entry, op_context);
LINKGAUGE_SAME_FIELD(QueueError, context, fi_cq_err_entry, op_context);
LINKGAUGE_SAME_FIELD(QueueError, err, fi_cq_err_entry, err);
LINKGAUGE_SAME_FIELD(QueueError, err_data_size, fi_cq_err_entry, err_data_size);
static_assert(sizeof(QueueError) >= sizeof(fi_cq_err_entry));
LINKGAUGE_SAME_FIELD(Queue, calls, fid_cq, ops);
LINKGAUGE_SAME_FIELD(QueueCalls, read, fi_ops_cq, read);
LINKGAUGE_SAME_FIELD(QueueCalls, readerr, fi_ops_cq, readerr);
LINKGAUGE_SAME_FIELD(ConnectionCalls, getname, fi_ops_cm, getname);
LINKGAUGE_SAME_FIELD(MemoryMessage, msg_iov, fi_msg_rma, msg_iov);
LINKGAUGE_SAME_FIELD(MemoryMessage, descriptors, fi_msg_rma, desc);
LINKGAUGE_SAME_FIELD(MemoryMessage, peer, fi_msg_rma, addr);
LINKGAUGE_SAME_FIELD(MemoryMessage, rma_iov, fi_msg_rma, rma_iov);
LINKGAUGE_SAME_FIELD(MemoryMessage, context, fi_msg_rma, context);
static_assert(sizeof(MemoryMessage) == sizeof(fi_msg_rma));
LINKGAUGE_SAME_FIELD(RemotePiece, address, fi_rma_iov, addr);
LINKGAUGE_SAME_FIELD(RemotePiece, bytes, fi_rma_iov, len);
LINKGAUGE_SAME_FIELD(RemotePiece, key, fi_rma_iov, key);
static_assert(sizeof(RemotePiece) == sizeof(fi_rma_iov));
LINKGAUGE_SAME_FIELD(MemoryCalls, read, fi_ops_rma, read);
LINKGAUGE_SAME_FIELD(MemoryCalls, writemsg, fi_ops_rma, writemsg);
LINKGAUGE_SAME_FIELD(TaggedCalls, recv, fi_ops_tagged, recv);
LINKGAUGE_SAME_FIELD(TaggedCalls, send, fi_ops_tagged, send);
LINKGAUGE_SAME_FIELD(Endpoint, connection, fid_ep, cm);
LINKGAUGE_SAME_FIELD(Endpoint, memory, fid_ep, rma);
LINKGAUGE_SAME_FIELD(Endpoint, tagged, fid_ep, tagged);

LINKGAUGE_SAME_VALUE(kRma, FI_RMA);
LINKGAUGE_SAME_VALUE(kTagged, FI_TAGGED);
LINKGAUGE_SAME_VALUE(kRead, FI_READ);
LINKGAUGE_SAME_VALUE(kWrite, FI_WRITE);
LINKGAUGE_SAME_VALUE(kReceive, FI_RECV);
LINKGAUGE_SAME_VALUE(kSend, FI_SEND);
LINKGAUGE_SAME_VALUE(kRemoteRead, FI_REMOTE_READ);
LINKGAUGE_SAME_VALUE(kRemoteWrite, FI_REMOTE_WRITE);
LINKGAUGE_SAME_VALUE(kCompletion, FI_COMPLETION);
LINKGAUGE_SAME_VALUE(kDeliveryComplete, FI_DELIVERY_COMPLETE);
LINKGAUGE_SAME_VALUE(kDeviceMemory, FI_HMEM);
LINKGAUGE_SAME_VALUE(kContext, FI_CONTEXT);
LINKGAUGE_SAME_VALUE(kContext2, FI_CONTEXT2);
LINKGAUGE_SAME_VALUE(kSendAfterSend, FI_ORDER_SAS);
LINKGAUGE_SAME_VALUE(kAnyAddress, FI_ADDR_UNSPEC);
LINKGAUGE_SAME_VALUE(kMrLocal, FI_MR_LOCAL);
LINKGAUGE_SAME_VALUE(kMrVirtualAddress, FI_MR_VIRT_ADDR);
LINKGAUGE_SAME_VALUE(kMrAllocated, FI_MR_ALLOCATED);
LINKGAUGE_SAME_VALUE(kMrProviderKey, FI_MR_PROV_KEY);
LINKGAUGE_SAME_VALUE(kMrEndpoint, FI_MR_ENDPOINT);
LINKGAUGE_SAME_VALUE(kMrDeviceMemory, FI_MR_HMEM);
LINKGAUGE_SAME_VALUE(kReliableDatagrams, FI_EP_RDM);
LINKGAUGE_SAME_VALUE(kThreadDomain, FI_THREAD_DOMAIN);
LINKGAUGE_SAME_VALUE(kManaged, FI_RM_ENABLED);
LINKGAUGE_SAME_VALUE(kEntryContext, FI_CQ_FORMAT_CONTEXT);
LINKGAUGE_SAME_VALUE(kEnable, FI_ENABLE);
LINKGAUGE_SAME_VALUE(kErrorAvailable, FI_EAVAIL);
LINKGAUGE_SAME_VALUE(kHostMemory, FI_HMEM_SYSTEM);
LINKGAUGE_SAME_VALUE(kCudaMemory, FI_HMEM_CUDA);
LINKGAUGE_SAME_VALUE(kRocmMemory, FI_HMEM_ROCR);
static_assert(sizeof(Operation::of_the_library) >= sizeof(fi_context2));

LINKGAUGE_OFI_API(LINKGAUGE_COMPARE, LINKGAUGE_COMPARE)

}  // namespace
}  // namespace linkgauge::ofi
