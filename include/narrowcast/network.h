// How ranks on other hosts would find this process.
#ifndef NARROWCAST_NETWORK_H_
#define NARROWCAST_NETWORK_H_

#include "narrowcast/text.h"
#include "narrowcast/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// Where this process would listen for other ranks if it created a unique id now, by its environment and interfaces.
// report: a JSON object; destroy it with ncast_text_destroy.
//   host, host_id: the name of this host, and a number that is the same in processes that can share memory
//   several_hosts: why the environment says that ranks of the host backend may be on several hosts; "" if it does not
//   wanted_interfaces: the value of NARROWCAST_SOCKET_IFNAME or NCCL_SOCKET_IFNAME; "" if neither is set
//   addresses: in the order of preference, objects with `interface`, `ip`, and `listens`: true for the first that works
//   error: why there is none; "" if there is one
//   network: the value of NARROWCAST_NET: tcp, plugin, ucx or auto
//   carrier: what carries bytes if all ranks have it, "TCP", a network plugin of NCCL or UCX, which is loaded and
//     initialized. "" if it cannot be used
//   carrier_error: why it cannot be used; "" if it can
//   transports: those of UCX that are for networks; "" if it is not used
//   why_tcp: why auto means TCP; "" if it does not
// Error: INVALID_ARGUMENT if report is NULL.
NCAST_API ncast_status ncast_network_report(ncast_text** report);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // NARROWCAST_NETWORK_H_
