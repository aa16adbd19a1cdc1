#include "channel/network/carrier.h"

#include <cstdlib>

#include "status/error.h"

namespace narrowcast::channel {
namespace {

void find_best(Carrier* carrier, std::string* why_tcp) {
  if (NetPlugin::load(&carrier->plugin) == NCAST_OK) return;
  *why_tcp = ncast_last_error();
  if (!UcxLibrary::host_has_rdma()) {
    *why_tcp += "; this host has no InfiniBand or RoCE devices for UCX";
  } else if (UcxLibrary::load(&carrier->ucx) != NCAST_OK) {
    *why_tcp += std::string("; ") + ncast_last_error();
  } else if (!carrier->ucx->has_rdma()) {
    *why_tcp += "; " + carrier->ucx->name() + " has no transport for InfiniBand or RoCE";
    carrier->ucx = nullptr;
  }
}

}  // namespace

std::string wanted_network() {
  const char* const value = secure_getenv(network_variable);
  return value == nullptr || *value == '\0' ? "tcp" : value;
}

std::string Carrier::name() const { return plugin != nullptr ? plugin->name() : ucx != nullptr ? ucx->name() : "TCP"; }

ncast_status find_carrier(std::string_view wanted, Carrier* carrier, std::string* why_tcp) {
  std::string why;
  *carrier = {};
  if (wanted == "plugin") return NetPlugin::load(&carrier->plugin);
  if (wanted == "ucx") return UcxLibrary::load(&carrier->ucx);
  if (wanted == "auto") {
    find_best(carrier, why_tcp == nullptr ? &why : why_tcp);
  } else if (wanted != "tcp") {
    return fail(NCAST_INVALID_ARGUMENT, "%s is '%s', not tcp, plugin, ucx or auto", network_variable,
                std::string(wanted).c_str());
  }
  return NCAST_OK;
}

}  // namespace narrowcast::channel
